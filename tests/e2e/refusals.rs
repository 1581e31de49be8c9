//! What perturb refuses, and what it says then.

use std::process::Stdio;

use anyhow::{Result, ensure};
use perturb_tests::{bed::INTERFACE, product::Pacer, remains::State};

use crate::harness::{Setting, Test, each, once, skip};

pub(crate) const TESTS: &[Test] = &[
    each("refusals::taken_names_are_errors", taken),
    once("refusals::errors_say_what_to_do", errors),
    once("refusals::no_fq_is_exit_code_3", no_fq),
];

/// A device of the name that perturb needs: an error, and the device stays.
fn taken(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    let links = bed.left.run("ip -oneline link show")?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    let names: Vec<&str> = links
        .lines()
        .filter_map(|line| line.split(": ").nth(1)?.split('@').next())
        .filter(|name| name.starts_with("pt"))
        .collect();
    ensure!(!names.is_empty(), "perturb's devices are not named pt…: {links}");
    for name in names {
        bed.left
            .run(&format!("ip link add {name} type veth peer name other"))?;
        let before = State::of(&bed.left)?;
        let profile = setting.product.profile("latency: 1ms")?;
        let arguments = [
            "apply",
            &*profile.to_string_lossy(),
            "--iface",
            INTERFACE,
            "--pacer",
            setting.pacer.name(),
            "--for",
            "1s",
        ];
        let refused = setting.product.call(&bed.left, &arguments)?;
        ensure!(refused.code() == 1, "with {name} taken: {refused:?}");
        ensure!(
            refused.stderr.contains(name),
            "the message does not name {name}: {}",
            refused.stderr
        );
        before.must_be_that_of(&bed.left)?;
        bed.left.run(&format!("ip link del {name}"))?;
    }
    Ok(())
}

fn errors(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let call = |profile: &str, interface: &str| -> Result<(i32, String)> {
        let profile = setting.product.profile(profile)?;
        let called = setting.product.call(
            &bed.left,
            &[
                "apply",
                &profile.to_string_lossy(),
                "--iface",
                interface,
                "--for",
                "1s",
            ],
        )?;
        Ok((called.code(), called.stderr))
    };
    let (code, said) = call("latency: 20", INTERFACE)?;
    ensure!(code == 2 && said.contains("20ms"), "{code}: {said}");
    let (code, said) = call("latency: 20ms\nlatency: 30ms\nbandwith: 1Mbit/s", INTERFACE)?;
    ensure!(
        code == 2 && said.contains("bandwidth") && said.matches("latency").count() >= 1,
        "{code}: {said}"
    );
    let (code, said) = call("latency: 20ms", "eth7")?;
    ensure!(
        code == 1 && said.contains("eth7") && said.contains(INTERFACE),
        "{code}: {said}"
    );
    let called = setting.product.call(&bed.left, &["apply"])?;
    ensure!(called.code() == 2, "{called:?}");
    before.must_be_that_of(&bed.left)
}

fn no_fq(setting: &Setting) -> Result<()> {
    if setting.kernel.fq {
        return Err(skip("this kernel has sch_fq"));
    }
    let (bed, before) = setting.bed()?;
    let profile = setting.product.profile("latency: 20ms")?;
    let profile = profile.to_string_lossy();
    let mut run = setting.product.on(&bed.left);
    run.args(["run", "--pacer", "fq", &profile, "--", "true"])
        .stdout(Stdio::null());
    let apply = [
        "apply",
        &*profile,
        "--iface",
        INTERFACE,
        "--pacer",
        Pacer::Fq.name(),
    ];
    let mut apply_command = setting.product.on(&bed.left);
    apply_command.args(apply);
    for mut command in [run, apply_command] {
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(3), "{}: {said}", output.status);
        for word in ["CONFIG_NET_SCH_FQ", "--pacer user", "--sandbox"] {
            ensure!(said.contains(word), "the message does not name {word}: {said}");
        }
    }
    before.must_be_that_of(&bed.left)
}
