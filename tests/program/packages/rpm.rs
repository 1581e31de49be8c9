//! The rpm, by rpm itself.

use std::process::Command;

use anyhow::{Result, ensure};
use perturb_verdict::{conclude, installed};

use super::{THIS, contents, package, said, unpack};

fn asked(question: &str) -> Result<Vec<String>> {
    let mut rpm = Command::new("rpm");
    rpm.arg(question).arg(package(&format!("{THIS}.rpm"))?);
    Ok(said(&mut rpm)?.lines().map(str::to_owned).collect())
}

#[test]
fn it_needs_no_package_and_has_the_archive_s_files() {
    let compared = || {
        installed(&["rpm", "rpmbuild"])?;
        for needed in asked("-qRp")? {
            ensure!(needed.starts_with("rpmlib("), "it needs {needed}");
        }
        let directory = tempfile::tempdir()?;
        let (archive, installed) = (directory.path().join("archive"), directory.path().join("rpm"));
        unpack(&package(&format!("{THIS}.tar.gz"))?, &archive)?;
        let listed = asked("-qlp")?.len();
        let archived = contents(&archive)?;
        ensure!(
            listed == archived.len(),
            "{listed} files, in the archive {}",
            archived.len()
        );
        // As on a system whose packages are rpms.
        let mut install = Command::new("rpm");
        install
            .arg("--root")
            .arg(&installed)
            .args(["--install", "--force-debian", "--nosignature"]);
        std::fs::create_dir(&installed)?;
        said(install.arg(package(&format!("{THIS}.rpm"))?))?;
        let mut version = Command::new(installed.join("usr/bin/perturb"));
        ensure!(said(version.arg("--version"))?.starts_with("perturb "));
        ensure!(
            contents(&installed.join("usr"))? == contents(&archive.join("usr"))?,
            "other files"
        );
        Ok(())
    };
    conclude(compared());
}
