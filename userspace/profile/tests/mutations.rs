//! 10 000 mutated profiles: each is refused with at least one located error, or is a valid profile that
//! can be printed, read again, explained and compiled. Never a panic.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use perturb_profile::{Files, compile, explain, parse};
use support::configs;

/// SplitMix64: the same mutations in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

const FRAGMENTS: &[&str] = &[
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "---\n",
    "...\n",
    "- ",
    "? ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "|\n",
    ">\n",
    "'",
    "\"",
    "\t",
    "\n",
    "#",
    "%",
    "@",
    "`",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "🦀",
    "é",
    "~",
    "null",
    "0x",
    "1e9",
    "-1",
    "0",
    "18446744073709551616",
    "99999999999999999999999999999999999999999s",
    "20",
    "ms",
    "0ns",
    "1TB/s",
    "100%",
    "101%",
    "version: 1\n",
    "latency: 1ms\n",
    "servers:\n",
    "classes:\n",
    "match: {}",
    "topology: { kind: tree }\n",
    "nth: [0]",
    "10.0.0.1/8",
    "::/0",
    "65536",
    "9-1",
    "bypass: true",
];

fn mutate(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(chars.len() + 1);
        let end = (at + random.below(12)).min(chars.len());
        match random.below(6) {
            0 => drop(chars.drain(at..end)),
            1 => drop(chars.splice(at..at, FRAGMENTS[random.below(FRAGMENTS.len())].chars())),
            2 => drop(chars.splice(at..end, FRAGMENTS[random.below(FRAGMENTS.len())].chars())),
            3 => {
                let copy: Vec<char> = chars[at..end].to_vec();
                let to = random.below(chars.len() + 1);
                drop(chars.splice(to..to, copy));
            }
            4 if at < chars.len() => chars[at] = char::from(random.below(128) as u8),
            _ => {
                let mut lines: Vec<String> = chars
                    .iter()
                    .collect::<String>()
                    .lines()
                    .map(str::to_owned)
                    .collect();
                if lines.len() > 1 {
                    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                    lines.swap(a, b);
                    chars = lines.join("\n").chars().collect();
                }
            }
        }
    }
    chars.into_iter().collect()
}

#[test]
fn mutated_profiles_are_refused_or_valid() {
    let configs = configs();
    let mut random = Random(2);
    let (mut valid, mut refused) = (0, 0);
    for round in 0..10_000 {
        let (_, text) = &configs[round % configs.len()];
        let mutated = mutate(text, &mut random);
        match parse(&mutated) {
            Ok(profile) => {
                valid += 1;
                let printed = profile.to_string();
                assert_eq!(
                    parse(&printed).as_ref(),
                    Ok(&profile),
                    "from:\n{mutated}\nprinted:\n{printed}"
                );
                let _ = explain(&profile, &Files::default()).to_string();
                // A table file may be missing; anything else must compile.
                let _ = compile(&profile, &Files::default());
            }
            Err(problems) => {
                refused += 1;
                assert!(!problems.errors.is_empty());
                let lines = mutated.lines().count().max(1) + 1;
                for error in &problems.errors {
                    assert!(
                        (1..=lines).contains(&error.line) && error.column >= 1,
                        "{error:?} in\n{mutated}"
                    );
                }
                let _ = problems.to_string();
            }
        }
    }
    // Both kinds must occur often, or the mutations test nothing.
    assert!(valid > 500 && refused > 4000, "{valid} valid, {refused} refused");
}
