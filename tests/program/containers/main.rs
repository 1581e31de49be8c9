//! `apply --container` and `--compose` on containers of real engines: Podman and Docker.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{collections::BTreeMap, fs};

use anyhow::Result;
use perturb_tests::product::{self, executable};
use perturb_verdict::{installed, or_end, root, skip};

const SERVICES: &str = concat!(include_str!("engine.sh"), include_str!("services.sh"));
/// What a container sends arrives so much later, ms.
const PROFILE: &str =
    "version: 1\nservers: { up: { latency: 40ms } }\nclasses: [{ match: {}, egress: [up] }]\n";
/// Regions of containers, and how far each is from the other, one way.
const REGIONS: &str = include_str!("regions.yaml");
const TABLE: &str = include_str!("regions.csv");
/// Round trips in which one side is emulated, ms, and how much more they may take on a busy machine.
const ONE: f64 = 40.0;
const MORE: f64 = 25.0;

#[test]
fn services_of_podman_are_followed() {
    or_end!(root());
    or_end!(installed(&["podman", "crun", "busybox", "ip", "unshare"]));
    or_end!(are_followed("podman"));
}

#[test]
fn services_of_docker_are_followed() {
    or_end!(root());
    or_end!(installed(&["docker", "dockerd", "busybox", "ip", "unshare"]));
    or_end!(are_followed("docker"));
}

fn are_followed(engine: &str) -> Result<()> {
    let out = tempfile::tempdir().unwrap();
    let profile = out.path().join("p.yaml");
    fs::write(&profile, PROFILE).unwrap();
    let regions = out.path().join("regions.yaml");
    fs::write(&regions, REGIONS).unwrap();
    fs::write(out.path().join("regions.csv"), TABLE).unwrap();
    let output = product::script_apart(SERVICES)
        .env("ENGINE", engine)
        .env("OUT", out.path())
        .env("PROFILE", &profile)
        .env("REGIONS", &regions)
        .env("PERTURB", executable())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(out.path().join("engine.log")).unwrap_or_default();
    if text.contains("absent 1") {
        let last = log.lines().last().unwrap_or_default();
        return Err(skip(format!("{engine} does not start here: {last}")));
    }
    assert!(text.contains("end 0"), "{text}\n{log}");
    assert!(
        !text.lines().any(|line| line.starts_with("late \"")),
        "too late: {text}\n{log}"
    );

    let values: BTreeMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    for (name, sides) in [
        ("before", 0.0),
        ("to_db", 1.0),
        ("between", 2.0),
        ("restarted", 1.0),
        ("late", 1.0),
        ("without_engine", 1.0),
        ("later", 1.0),
        ("let_go", 0.0),
        ("cleared", 0.0),
        ("regions", 2.0),
        ("into_region", 2.0),
        ("within_region", 0.25),
        ("detached", 1.0),
        ("compose", 1.0),
        ("killed", 0.0),
        ("inside", 1.0),
    ] {
        let found = values
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {text}\n{log}"));
        let wanted = sides * ONE;
        assert!(
            (wanted..wanted + MORE).contains(found),
            "{name}: {found} ms, not {wanted}: {text}\n{log}"
        );
    }
    for name in ["follower", "writable"] {
        assert_eq!(values.get(name), Some(&0.0), "{name}: {text}");
    }

    for (about, part) in [
        ("--container dbb", "did you mean `db`?"),
        ("--container job", "start it first"),
        ("--container hosted", "this machine's own network"),
        ("--container beside", "this machine's own network"),
        ("--container a=b", "neither a container's name nor a label"),
        (
            "--container db --network back",
            "it is not in the network `back`; it is in front",
        ),
        ("no engine", "nobody.sock"),
        ("dry", "would be applied to web:eth0"),
        ("status", "db:eth0: emulated by"),
        ("one", "cleared late:eth0"),
        ("all", "label=emulate=yes is followed no more"),
        ("detached", "emulating on db until `perturb clear`"),
        ("again", "follows db already"),
        ("named", "db is followed no more"),
        ("followed", "each container has servers of its own"),
        (
            "followed",
            "beside uses this machine's own network and is left alone",
        ),
        ("followed", "does not answer"),
        ("followed", "answers again"),
        ("followed", "db has stopped"),
        ("followed", "late was cleared by another command"),
    ] {
        let begin = format!("said {about}: ");
        assert!(
            text.lines()
                .any(|line| line.starts_with(&begin) && line.contains(part)),
            "{about}: no `{part}`: {text}\n{log}"
        );
    }
    for (words, code) in [("--container dbb", 1), ("--container a=b", 2)] {
        assert!(
            text.lines().any(|line| line == format!("code {code} {words}")),
            "{words}: {text}"
        );
    }
    Ok(())
}
