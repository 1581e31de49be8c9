//! The .deb on fresh systems of Debian.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use anyhow::{Context as _, Result};
use perturb_tests::product::apart;
use perturb_verdict::{complete, conclude, installed, root};

use super::{package, said, whole};

/// Names of Debian's processors.
const DEBIAN_ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// What is done on the system below $ROOT. The kernel is this machine's.
const USE: &str = r#"
set -eu
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs run "$ROOT/run"
exec chroot "$ROOT" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -euc '
    apt-get install --yes --no-install-recommends /tmp/perturb.deb
    cat /etc/debian_version
    perturb --version
    for profile in /usr/share/perturb/configs/*.yaml; do perturb check "$profile" >/dev/null; done
    perturb run /usr/share/perturb/configs/simple.yaml -- true
    perturb run mobile-lte -- sh -c "test -e /proc/self/ns/net; exit 7" && exit 1 || [ $? = 7 ]
    dpkg --verify perturb
    apt-get purge --yes perturb
    [ ! -e /usr/bin/perturb ] && [ ! -e /usr/share/perturb ]
    echo used'
"#;

/// A system of this suite, with apt and what it needs.
fn system(suite: &str, directory: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        let mut make = Command::new("mmdebstrap");
        // Messages are those of the host.
        make.args(["--quiet", "--variant=apt", suite])
            .arg(directory)
            .env("LC_ALL", "C");
        match said(&mut make) {
            Ok(_) => return Ok(()),
            // The network may fail.
            Err(_) if tries < 2 => {
                tries += 1;
                fs::remove_dir_all(directory).ok();
                thread::sleep(Duration::from_secs(5));
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_used_on(suite: &str) -> Result<()> {
    root()?;
    installed(&["mmdebstrap", "dpkg-deb", "unshare"])?;
    let directory = tempfile::tempdir()?;
    let system_root = directory.path().join("root");
    system(suite, &system_root)?;
    fs::copy(
        package(&format!("_{DEBIAN_ARCH}.deb"))?,
        system_root.join("tmp/perturb.deb"),
    )
    .context("copying the package")?;
    let text = said(apart().args(["sh", "-c", USE]).env("ROOT", &system_root))?;
    complete(&text)?;
    anyhow::ensure!(text.ends_with("used\n"), "{text}");
    println!("{text}");
    Ok(())
}

#[test]
fn the_deb_works_on_debian_12() {
    conclude(is_used_on("bookworm"));
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn the_deb_works_on_debian_13() {
    conclude(whole().and_then(|()| is_used_on("trixie")));
}
