//! Other programs: started, shown, timed, tried again.

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Pauses before a network step is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// Says what xtask does, apart from what the programs it starts say.
pub(crate) fn say(message: &str) {
    eprintln!("xtask: {message}");
}

/// Shows the command, runs it with our own outputs and no input, and says how long it took.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    say(&format!("$ {line}"));
    let start = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    say(&format!("done in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(())
}

/// As [`run`], up to three times: for what needs the network.
pub(crate) fn run_over_network(command: &mut Command) -> Result<()> {
    for pause in PAUSES {
        match run(command) {
            Ok(()) => return Ok(()),
            Err(error) => say(&format!("{error}; again in {} s", pause.as_secs())),
        }
        thread::sleep(pause);
    }
    run(command)
}

/// What the command prints, if it can be started and succeeds; its complaints are dropped.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An executable in PATH, or where administrators' programs are when PATH is an ordinary user's.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn shown(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            // Flags are passed with a separator that no terminal shows.
            let value = value.to_string_lossy().replace('\x1f', " ");
            // Writing to a string cannot fail.
            let _: std::fmt::Result = write!(line, "{}={} ", name.display(), quoted(value.as_ref()));
        }
    }
    line.push_str(&quoted(command.get_program()));
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted() {
        let mut command = Command::new("cargo");
        command
            .args(["build", "--cfg=a=\"b c\"", "", "it's"])
            .env("FLAGS", "-a\x1f-b");
        assert_eq!(
            shown(&command),
            r#"FLAGS='-a -b' cargo build '--cfg=a="b c"' '' 'it'\''s'"#
        );
    }
}
