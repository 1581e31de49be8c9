//! The load on NFS servers that others wrote: NFS-Ganesha in namespaces of its own, and the kernel's in the sandbox.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use perturb_tests::product::{self, executable};
use perturb_verdict::{complete, installed, or_end, root};
use serde_json::Value;

/// SFS 2.0, percent of RPCs.
const MIX: [(&str, f64); 14] = [
    ("lookup", 27.0),
    ("read", 18.0),
    ("getattr", 11.0),
    ("write", 9.0),
    ("readdirplus", 9.0),
    ("access", 7.0),
    ("readlink", 7.0),
    ("commit", 5.0),
    ("readdir", 2.0),
    ("create", 1.0),
    ("remove", 1.0),
    ("setattr", 1.0),
    ("fsstat", 1.0),
    ("fsinfo", 1.0),
];

/// Share of an RPC that may differ, percentage points.
const TOLERANCE: f64 = 0.5;
/// Each RPC that was under way when the run ended may be missing from its share, and a share is a few RPCs ahead
/// or behind at any time.
const ROUGHNESS: f64 = 16.0;
/// Fewer RPCs say little of the mix.
const FEWEST: u64 = 500;
/// This variable asks for longer runs: seconds over each transport.
const SECONDS_VARIABLE: &str = "PERTURB_NFS_SECONDS";
const SECONDS: u64 = 8;

/// Loads over both transports through port mapper and mount; leaves tcp.json, udp.json and what is left of the
/// export in the directory. A closed load waits for a slow machine instead of overrunning it.
const LOADS: &str = r#"
for transport in tcp udp; do
    timeout $((SECONDS_OF_RUN + 60)) "$PERTURB" nfs load --server 127.0.0.1:/srv --transport $transport --rate $RATE \
        --scale 0.002 --processes 4 --warmup 1s --duration ${SECONDS_OF_RUN}s --json --quiet > "$OUT/$transport.json" ||
        echo "the load over $transport ended with $?" >&2
done
ls -A /srv > "$OUT/left"
"#;

const GANESHA: &str = r#"
set -e
ip link set lo up
mount -t tmpfs run /run; mkdir -p /run/rpcbind /run/lock
mount -t tmpfs srv /srv
mkdir -p /var/lib/nfs; mount -t tmpfs lib /var/lib/nfs; mkdir -p /var/lib/nfs/ganesha
cat > "$OUT/ganesha.conf" <<END
NFS_CORE_PARAM { Protocols = 3; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; }
EXPORT { Export_Id = 1; Path = /srv; Pseudo = /srv; Access_Type = RW; Squash = No_Root_Squash; Protocols = 3;
         Transports = TCP, UDP; SecType = sys; FSAL { Name = VFS; } }
END
rpcbind -w
ganesha.nfsd -F -f "$OUT/ganesha.conf" -L "$OUT/ganesha.log" -p /run/ganesha.pid -N NIV_CRIT &
for attempt in $(seq 100); do rpcinfo -t 127.0.0.1 nfs 3 >/dev/null 2>&1 && break; sleep 0.2; done
set +e
"#;

const KNFSD: &str = r#"
set -e
ip link set lo up
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
mount -t tmpfs run /run; mkdir -p /run/rpcbind /run/lock
mount -t tmpfs srv /srv
mkdir -p /var/lib/nfs; mount -t tmpfs lib /var/lib/nfs; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
rpcbind -w
exportfs -o rw,no_root_squash,insecure,fsid=1,no_subtree_check '*:/srv'
rpc.mountd -N 4 --port 20048
rpc.nfsd --no-nfs-version 4 --udp --tcp 4
for attempt in $(seq 100); do rpcinfo -t 127.0.0.1 nfs 3 >/dev/null 2>&1 && break; sleep 0.2; done
set +e
"#;

#[test]
fn ganesha() {
    or_end!(root());
    or_end!(installed(&["ganesha.nfsd", "rpcbind", "rpcinfo", "unshare"]));
    let out = tempfile::tempdir().unwrap();
    let script = script(out.path(), GANESHA, 2_000);
    let mut command = product::apart();
    command.arg(script);
    let said = run(&mut command, out.path());
    check(out.path(), &said);
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn knfsd() {
    let servers = ["rpc.nfsd", "rpc.mountd", "exportfs", "rpcbind", "rpcinfo"];
    or_end!(installed(&[&["linux.uml"], &servers[..]].concat()));
    let out = tempfile::tempdir().unwrap();
    let script = script(out.path(), KNFSD, 600);
    let profile = out.path().join("untouched.yaml");
    fs::write(
        &profile,
        "version: 1\nname: untouched\nclasses:\n  - { name: all, match: {}, bypass: true }\n",
    )
    .unwrap();
    let mut command = Command::new(executable());
    command
        .args(["run", "--sandbox"])
        .arg(profile)
        .arg("--")
        .arg(script);
    let said = run(&mut command, out.path());
    or_end!(complete(&said));
    check(out.path(), &said);
}

fn script(out: &Path, server: &str, rate: u32) -> PathBuf {
    let seconds = std::env::var(SECONDS_VARIABLE).map_or(SECONDS, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{SECONDS_VARIABLE} is `{text}`; give a number of seconds"))
    });
    let path = out.join("serve-and-load");
    let text = format!(
        "#!/bin/bash\nPATH=$PATH:/usr/sbin:/sbin\nPERTURB='{}'\nOUT='{}'\nRATE={rate}\nSECONDS_OF_RUN={seconds}\n{server}{LOADS}",
        executable(),
        out.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Runs it in the directory, which is all a sandbox may write to; what it says on stderr, and how it ended.
fn run(command: &mut Command, out: &Path) -> String {
    let output = command
        .current_dir(out)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", command.get_program()));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), output.status);
    eprintln!("{said}");
    said
}

/// No error over either transport, the mix within its tolerance, and nothing left.
fn check(out: &Path, said: &str) {
    for transport in ["tcp", "udp"] {
        let path = out.join(format!("{transport}.json"));
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("no load over {transport} was run ({error}):\n{said}"));
        let record: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("the load over {transport} failed ({error}):\n{text}{said}"));
        assert_eq!(
            record["errors"], 0,
            "{transport}: {}\n{said}",
            record["errors_by_kind"]
        );
        let count = |name: &str| record["operations"][name]["count"].as_u64().unwrap_or(0);
        let total: u64 = MIX.iter().map(|(name, _)| count(name)).sum();
        assert!(total >= FEWEST, "{transport}: only {total} RPCs\n{said}");
        let worst = MIX
            .iter()
            .map(|(name, percent)| (100.0 * count(name) as f64 / total as f64 - percent).abs())
            .fold(0.0, f64::max);
        let number = |key: &str| record[key].as_f64().unwrap_or(f64::NAN);
        println!(
            "{transport}: {total} RPCs, {:.1} of {} op/s, shares within {worst:.3} points, mean {:.2} ms",
            number("delivered_op_s"),
            number("requested_op_s"),
            number("mean_ms")
        );
        let allowed = TOLERANCE + 100.0 * ROUGHNESS / total as f64;
        assert!(
            worst < allowed,
            "{transport}: a share is {worst} points off in {total} RPCs"
        );
    }
    assert_eq!(
        fs::read_to_string(out.join("left")).ok().as_deref(),
        Some(""),
        "the load left something on the server\n{said}"
    );
}
