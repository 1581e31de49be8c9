//! Which key does what: one table, for terminals, for lines that are typed, and for the help.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{knob::Way, model::Key};

/// What each key is called, what it does, and its letters.
pub(super) const KEYS: &[(Key, &[char], &str, &str)] = &[
    (Key::Up, &['k'], "up, k", "the server before"),
    (Key::Down, &['j'], "down, j", "the server after"),
    (Key::First, &['g'], "home, g", "the first server"),
    (Key::Last, &['G'], "end, G", "the last server"),
    (Key::Left, &['h'], "left, h", "the knob before"),
    (Key::Right, &['l'], "right, l", "the knob after"),
    (
        Key::Turn(Way::More),
        &['+', '='],
        "+",
        "turn the knob up by a step",
    ),
    (Key::Turn(Way::Less), &['-'], "-", "turn it down by a step"),
    (
        Key::Pause,
        &['p'],
        "p",
        "pause: traffic passes untouched; again: go on",
    ),
    (
        Key::Undo,
        &['u'],
        "u",
        "back to the profile before the last step here",
    ),
    (Key::Help, &['?'], "?", "this help"),
    (Key::Quit, &['q'], "q", "leave; what was changed stays"),
];

/// A key by its letter.
pub(super) fn of_letter(letter: char) -> Option<Key> {
    let found = KEYS.iter().find(|(_, letters, ..)| letters.contains(&letter));
    found.map(|(key, ..)| *key)
}

/// A key by what a terminal sends.
pub(super) fn of_event(event: &KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    match event.code {
        KeyCode::Char('c' | 'd') if event.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char(_)
            if event
                .modifiers
                .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            None
        }
        KeyCode::Char(letter) => of_letter(letter),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down | KeyCode::Tab => Some(Key::Down),
        KeyCode::Home => Some(Key::First),
        KeyCode::End => Some(Key::Last),
        KeyCode::Left => Some(Key::Left),
        KeyCode::Right => Some(Key::Right),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_letter_means_two_things() {
        let letters: Vec<char> = KEYS
            .iter()
            .flat_map(|(_, letters, ..)| *letters)
            .copied()
            .collect();
        let distinct: BTreeSet<&char> = letters.iter().collect();
        assert_eq!(letters.len(), distinct.len());
    }

    #[test]
    fn terminals_and_lines_agree() {
        let event = |code, modifiers| of_event(&KeyEvent::new(code, modifiers));
        for (key, letters, ..) in KEYS {
            for letter in *letters {
                assert_eq!(event(KeyCode::Char(*letter), KeyModifiers::NONE), Some(*key));
                assert_eq!(of_letter(*letter), Some(*key));
            }
        }
        assert_eq!(event(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Key::Last));
        assert_eq!(event(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(event(KeyCode::Char('u'), KeyModifiers::CONTROL), None);
        assert_eq!(event(KeyCode::Char('x'), KeyModifiers::NONE), None);
        let released = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(of_event(&released), None);
    }
}
