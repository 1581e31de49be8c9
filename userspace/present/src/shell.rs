//! Commands as a shell reads them.

use std::ffi::OsStr;

/// A word; in quotes if a shell would read it as something else.
#[must_use]
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "%+,-./:=@_".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The words of a command in one line.
#[must_use]
pub fn command(words: impl IntoIterator<Item: AsRef<OsStr>>) -> String {
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_words_that_were_given() {
        let words = ["a", "", "it's", "\"$0\" x && y", "--rates=1,2", "*", "~", "a\nb"];
        let line = format!("printf '%s|' {}", command(words));
        let read = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8(read.stdout).unwrap(), words.join("|") + "|");
        assert_eq!(
            command(["nfs", "--vary", "latency=10us"]),
            "nfs --vary latency=10us"
        );
    }
}
