//! What a command has said that looks again and again: it says each thing once, for as long as it is so.

use std::{collections::BTreeSet, mem};

/// What was said.
#[derive(Debug, Default)]
pub struct Told {
    before: BTreeSet<String>,
    now: BTreeSet<String>,
}

impl Told {
    /// Another look begins: what was so in the last one is not news.
    pub fn look_again(&mut self) {
        self.before = mem::take(&mut self.now);
    }

    /// Whether it is to be said now: from now on it counts as said.
    pub fn is_news(&mut self, message: &str) -> bool {
        let is_new = self.now.insert(message.into());
        is_new && !self.before.contains(message)
    }
}

#[cfg(test)]
mod tests {
    use super::Told;

    #[test]
    fn what_is_over_and_comes_again_is_news() {
        let mut told = Told::default();
        for (message, news) in [("damaged", true), ("damaged", false), ("gone", true)] {
            assert_eq!(told.is_news(message), news);
        }
        told.look_again();
        assert!(!told.is_news("damaged"));
        told.look_again();
        assert!(!told.is_news("damaged"));
        assert!(told.is_news("gone"));
    }
}
