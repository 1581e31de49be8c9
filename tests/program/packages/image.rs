//! The image in Podman, without a registry.

use anyhow::{Result, ensure};
use perturb_tests::product::apart;
use perturb_verdict::{complete, conclude, installed, root};

use super::{THIS, package, said, whole};

/// An engine of its own below $OUT.
const USE: &str = r#"
set -eu
mount -t tmpfs run /run; mkdir -p /run/lock
ip link set lo up
umount /sys/fs/cgroup/unified 2>/dev/null || true
export CONTAINERS_CONF="$OUT/containers.conf" TMPDIR="$OUT"
printf '[containers]\ncgroups = "disabled"\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nlog_driver = "k8s-file"\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' >"$CONTAINERS_CONF"
engine() { podman --root "$OUT/graph" --runroot "$OUT/state" --storage-driver vfs "$@"; }
engine load --quiet --input "$IMAGE"
engine image inspect perturb --format '{{.Architecture}} {{.Os}} {{.Config.Entrypoint}}'
[ -n "$RUN" ] || { echo loaded; exit; }
engine run --rm --network none perturb --version
engine run --rm --network none perturb check /usr/share/perturb/configs/simple.yaml
engine run --rm --network none --privileged perturb run mobile-lte -- /usr/bin/perturb --version
echo used
"#;

fn is_used(run: bool) -> Result<()> {
    root()?;
    installed(&["podman", "crun", "ip"])?;
    let directory = tempfile::tempdir()?;
    let mut engine = apart();
    engine.args(["sh", "-c", USE]).env("OUT", directory.path());
    engine.env("IMAGE", package(&format!("{THIS}.oci.tar"))?);
    let text = said(engine.env("RUN", if run { "1" } else { "" }))?;
    complete(&text)?;
    ensure!(text.contains("linux [/usr/bin/perturb]"), "{text}");
    ensure!(text.ends_with(if run { "used\n" } else { "loaded\n" }), "{text}");
    println!("{text}");
    Ok(())
}

#[test]
fn podman_loads_it() {
    conclude(is_used(false));
}

#[test]
fn podman_runs_it() {
    conclude(whole().and_then(|()| is_used(true)));
}
