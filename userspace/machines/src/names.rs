//! Lists of machines as Slurm writes them: `n[01-32,40],login`.
//!
//! A name may have several brackets, each with numbers and ranges; a number is as wide as the range's first one.

use std::{collections::HashSet, env, str::FromStr};

/// So many machines at most.
const MAX: usize = 4096;

/// What stands for the machines of the job that this process is part of.
const JOB: &str = "slurm";
/// Where Slurm names them.
const NODES_VARIABLE: &str = "SLURM_JOB_NODELIST";

/// Which machines are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// These, by ssh.
    Named(Hosts),
    /// Those of this Slurm job, by srun.
    Job,
}

impl On {
    /// The machines.
    ///
    /// # Errors
    /// When this process is in no job.
    pub fn hosts(&self) -> Result<Hosts, NameError> {
        match self {
            Self::Named(hosts) => Ok(hosts.clone()),
            Self::Job => env::var(NODES_VARIABLE).map_err(|_| NameError::NoJob)?.parse(),
        }
    }
}

impl FromStr for On {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == JOB {
            return Ok(Self::Job);
        }
        text.parse().map(Self::Named)
    }
}

/// Machines, each once, in the order in which they are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

/// Why a list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A name is empty.
    #[error("a name is missing: names stand between commas, such as n[01-32],login")]
    Empty,
    /// A bracket has no counterpart.
    #[error("`{0}`: each [ needs a ] behind it, such as n[01-32]")]
    Bracket(String),
    /// What stands in brackets is no number and no range.
    #[error("`{0}` is neither a number nor a range, such as 01-32")]
    Range(String),
    /// A name has a letter that none may have.
    #[error("`{0}` is no machine's name: letters, digits, `.`, `-`, `_`, and `USER@` in front; no `-` first")]
    Letter(String),
    /// A machine is named twice.
    #[error("`{0}` stands there twice")]
    Twice(String),
    /// There is no job.
    #[error(
        "--on {JOB} is for a job's own machines, and {NODES_VARIABLE} names none: give it inside of one, as with `salloc -N4 perturb …`, or \
         name machines"
    )]
    NoJob,
    /// They are too many.
    #[error("more than {MAX} machines")]
    TooMany,
}

impl Hosts {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for Hosts {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut names = Vec::new();
        for word in words(text)? {
            names.extend(expand(word)?);
            if names.len() > MAX {
                return Err(NameError::TooMany);
            }
        }
        let mut seen = HashSet::new();
        for name in &names {
            check(name)?;
            if !seen.insert(name) {
                return Err(NameError::Twice(name.clone()));
            }
        }
        Ok(Self(names))
    }
}

/// What stands between the commas that are outside of brackets.
fn words(text: &str) -> Result<Vec<&str>, NameError> {
    let (mut words, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' | ']' if is_inside == (letter == '[') => return Err(NameError::Bracket(text.into())),
            '[' | ']' => is_inside = !is_inside,
            ',' if !is_inside => {
                words.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(NameError::Bracket(text.into()));
    }
    words.push(&text[begin..]);
    Ok(words)
}

/// The names that a word stands for. Its brackets are in pairs.
fn expand(word: &str) -> Result<Vec<String>, NameError> {
    let Some((before, rest)) = word.split_once('[') else {
        return Ok(vec![word.into()]);
    };
    let (inside, after) = rest
        .split_once(']')
        .ok_or_else(|| NameError::Bracket(word.into()))?;
    let (numbers, tails) = (numbers(inside)?, expand(after)?);
    if numbers.len() * tails.len() > MAX {
        return Err(NameError::TooMany);
    }
    let each = numbers.iter();
    Ok(each
        .flat_map(|number| tails.iter().map(move |tail| format!("{before}{number}{tail}")))
        .collect())
}

fn numbers(inside: &str) -> Result<Vec<String>, NameError> {
    let mut numbers = Vec::new();
    for range in inside.split(',') {
        let wrong = || NameError::Range(range.into());
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number).ok_or_else(wrong)
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        if last - first >= MAX as u64 {
            return Err(NameError::TooMany);
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// Whether ssh takes it for a machine: an option would be another command.
fn check(name: &str) -> Result<(), NameError> {
    let wrong = || Err(NameError::Letter(name.into()));
    let (user, host) = name.split_once('@').unwrap_or(("user", name));
    if host.is_empty() && !name.contains('@') {
        return Err(NameError::Empty);
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    for part in [user, host] {
        if part.is_empty() || part.starts_with('-') || !part.chars().all(is_letter) {
            return wrong();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_machines_are_no_name() {
        assert_eq!("slurm".parse(), Ok(On::Job));
        assert_eq!("slurm1".parse(), Ok(On::Named(Hosts(vec!["slurm1".into()]))));
        assert!(env::var(NODES_VARIABLE).is_ok() || On::Job.hosts() == Err(NameError::NoJob));
    }

    fn read(text: &str) -> Result<String, NameError> {
        Ok(text.parse::<Hosts>()?.0.join(" "))
    }

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        for (text, names) in [
            ("login", "login"),
            ("n[01-03]", "n01 n02 n03"),
            ("n[8-10,40],login", "n8 n9 n10 n40 login"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
            (
                "n[1-2].cluster,root@10.0.0.1",
                "n1.cluster n2.cluster root@10.0.0.1",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Ok(names), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, error) in [
            ("", NameError::Empty),
            ("a,,b", NameError::Empty),
            ("n[1-2", NameError::Bracket("n[1-2".into())),
            ("n1]", NameError::Bracket("n1]".into())),
            ("n[[1]]", NameError::Bracket("n[[1]]".into())),
            ("n[3-1]", NameError::Range("3-1".into())),
            ("n[a]", NameError::Range("a".into())),
            ("n[+1]", NameError::Range("+1".into())),
            ("n[]", NameError::Range(String::new())),
            ("-oProxyCommand=sh", NameError::Letter("-oProxyCommand=sh".into())),
            ("a@-b", NameError::Letter("a@-b".into())),
            ("a;b", NameError::Letter("a;b".into())),
            ("@a", NameError::Letter("@a".into())),
            ("n[1-3],n2", NameError::Twice("n2".into())),
            ("n[1-5000]", NameError::TooMany),
            ("n[1-100]m[1-100]", NameError::TooMany),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
    }
}
