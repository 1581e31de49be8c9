//! `calibrate --peer`: knobs on top of the network between two machines.

use std::fs;

use anyhow::Result;
use perturb_verdict::{bound, conclude, installed, root, skip, thrice};

use super::{directory, said_alone};

const SCRIPT: &str = include_str!("calibrate.sh");
/// Of settings and ways: o and g at 4 and 3 settings, both ways each, L at 4, G at 2, both ways each.
const ROWS: usize = 2 * 4 + 2 * 3 + 4 + 2 * 2;

#[test]
fn knobs_come_on_top_of_a_real_network() {
    conclude(thrice(are_right));
}

fn are_right() -> Result<Option<String>> {
    root()?;
    installed(&["sshd", "ssh", "ssh-keygen", "ip", "unshare"])?;
    let files = directory();
    let unused = files.path().join("unused.yaml");
    fs::write(&unused, "version: 1\n")?;
    let said = said_alone(SCRIPT, &unused, &[])
        .ok_or_else(|| skip("perturb was built without its eBPF programs"))?;
    said.must(&[("code_wrong", 1.0)]);
    // It is a verdict on times.
    bound!(said.value("code_right") == 0.0, "{}", said.text);
    said.must_say(&[
        ("right", "n02-ib over ib0: o "),
        ("wrong", "WRONG"),
        ("wrong", "FAIL"),
        ("status", "nothing is applied"),
    ]);
    let rows = said.text.lines().filter(|line| {
        line.starts_with("said right: ") && ["ok", "hidden", "WRONG"].iter().any(|word| line.ends_with(word))
    });
    assert_eq!(rows.count(), ROWS, "{}", said.text);
    Ok(None)
}
