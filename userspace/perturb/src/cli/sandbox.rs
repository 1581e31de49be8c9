//! The same command line inside a user-mode kernel.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use perturb_sandbox::{Sandbox, Task};

use super::files::Lacking;

const SWITCH: &str = "--sandbox";
/// What sudo says of its caller. Inside, root is whoever called, by another number.
const CALLER: [&str; 2] = ["SUDO_UID", "SUDO_GID"];

/// Runs this process's command line again, without `--sandbox`, inside a user-mode kernel. It may write below the working
/// directory and below `writable`; `verbose` shows the kernel's messages. Returns its exit code.
pub(crate) fn in_sandbox(
    writable: impl IntoIterator<Item = impl AsRef<Path>>,
    verbose: bool,
) -> anyhow::Result<u8> {
    let sandbox = Sandbox::find().map_err(|error| Lacking(error.to_string()))?;
    let executable = env::current_exe().context("finding this executable")?;
    let mut task = Task::new(
        [executable.into()]
            .into_iter()
            .chain(without_switch(env::args_os().skip(1))),
    )?;
    task.env
        .retain(|(name, _)| !CALLER.iter().any(|caller| name == caller));
    for directory in writable {
        let directory = directory.as_ref();
        let path = std::path::absolute(directory);
        task.writable
            .push(path.with_context(|| format!("finding {}", directory.display()))?);
    }
    task.verbose = verbose;
    let status = sandbox.run(&task)?;
    Ok(perturb_sandbox::exit_code(status))
}

/// The directories of files that are to be written from inside.
pub(crate) fn beside(files: impl IntoIterator<Item = impl AsRef<Path>>) -> anyhow::Result<Vec<PathBuf>> {
    let directory = |file: &Path| {
        let path = std::path::absolute(file).with_context(|| format!("finding {}", file.display()))?;
        Ok(path.parent().unwrap_or(Path::new("/")).to_path_buf())
    };
    files.into_iter().map(|file| directory(file.as_ref())).collect()
}

/// The words without the switch. What follows `--` is another command's.
fn without_switch(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut is_ours = true;
    words.filter(move |word| {
        is_ours &= word != OsStr::new("--");
        !(is_ours && word == SWITCH)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_stay_but_the_switch() {
        let words = "run --spin 9us --sandbox p.yaml --coarse -- make --sandbox".split(' ');
        let kept: Vec<OsString> = without_switch(words.map(OsString::from)).collect();
        assert_eq!(
            kept.join(OsStr::new(" ")),
            "run --spin 9us p.yaml --coarse -- make --sandbox"
        );
    }
}
