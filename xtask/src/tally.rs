//! Sums what the test programs say about themselves.
//!
//! Rust's test programs end with `test result: ok. 5 passed; 0 failed; 1 ignored; …`. A test that finds at run time
//! that this kernel cannot do what it tests counts as passed there; it says so in the file that [`SKIPS_VARIABLE`]
//! names, one line `test: reason` each.

use std::{collections::BTreeMap, fmt, iter::Sum, ops::Add};

/// The variable that names the file where tests that could not run leave their reasons.
pub(crate) const SKIPS_VARIABLE: &str = "PERTURB_SKIPS";

/// Numbers of tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// Tests that cannot run here.
    pub(crate) skipped: u32,
    /// Long tests, which nobody asked for.
    pub(crate) left: u32,
}

impl Tally {
    /// What one line of a test program's output says; nothing for all but its last line.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let numbers = line.strip_prefix("test result: ")?.split_once(". ")?.1;
        let number = |word: &str| {
            let field = numbers
                .split(';')
                .map(str::trim)
                .find_map(|field| field.strip_suffix(word))?;
            field.trim().parse::<u32>().ok()
        };
        Some(Self {
            passed: number("passed")?,
            failed: number("failed")?,
            skipped: 0,
            left: number("ignored")?,
        })
    }

    /// Counts tests that passed only because they did nothing as skipped, or as failed if they should have run.
    pub(crate) fn moving(self, skipped: u32, failed: u32) -> Self {
        Self {
            passed: self.passed.saturating_sub(skipped + failed),
            skipped: self.skipped + skipped,
            failed: self.failed + failed,
            ..self
        }
    }
}

/// The reason of each skipped test; a test that gives several has one.
pub(crate) fn skips(file: &str) -> BTreeMap<&str, &str> {
    file.lines().filter_map(|line| line.split_once(": ")).collect()
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
            left: self.left + other.left,
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )?;
        match self.left {
            0 => Ok(()),
            left => write!(f, ", {left} long ones left to --full"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_summed() {
        let output = "\nrunning 3 tests\ntest a ... ok\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
            test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.00s\n";
        let sum: Tally = output.lines().filter_map(Tally::of_line).sum();
        assert_eq!(
            sum,
            Tally {
                passed: 14,
                failed: 3,
                skipped: 0,
                left: 1
            }
        );
        assert_eq!(
            sum.moving(2, 1).to_string(),
            "11 passed, 4 failed, 2 skipped, 1 long ones left to --full"
        );
    }

    #[test]
    fn a_test_is_skipped_once() {
        let found = skips("a::b: no sch_fq\nc: no root: really\na::b: no sch_fq\n");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("a::b", "no sch_fq"), ("c", "no root: really")]
        );
    }
}
