//! Options of a few words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Words, what each stands for, and what `--help` says about it.
pub(crate) type Words<T> = &'static [(&'static str, T, &'static str)];

/// Reads one of these words.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(words: Words<T>) -> impl TypedValueParser<Value = T> {
    let listed = words
        .iter()
        .map(|&(word, _, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(listed).try_map(move |given| {
        let known = words.iter().find(|(word, ..)| *word == given);
        known.map(|&(_, value, _)| value).ok_or("no such word")
    })
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn a_word_is_what_stands_beside_it() {
        const WORDS: Words<u32> = &[("one", 1, "The first"), ("two", 2, "The second")];
        let read = |word| {
            let command = Command::new("x").arg(Arg::new("word").value_parser(one_of(WORDS)));
            command.try_get_matches_from(["x", word])
        };
        assert_eq!(read("two").unwrap().get_one("word"), Some(&2_u32));
        let refused = read("three").unwrap_err().to_string();
        assert!(refused.contains("[possible values: one, two]"), "{refused}");
    }
}
