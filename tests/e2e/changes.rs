//! Servers that change: steps that drop, and ten thousand of a millisecond each.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use perturb_tests::datagrams::{self, Plan};

use crate::{
    harness::{Setting, Test, each, thrice},
    update::{done, update},
};

pub(crate) const TESTS: &[Test] = &[
    each("changes::what_is_down_drops", down),
    each("changes::ten_thousand_steps", steps),
    each("changes::apply_keeps_the_clock_or_restarts_it", restart),
    each("changes::run_marks_steps", marks),
];

const MS: u64 = 1_000_000;

/// A profile whose server `wan` changes by these steps, from the first packet on.
fn profile(steps: &str) -> String {
    format!(
        "version: 1
servers: {{ wan: {{ latency: 10ms }} }}
classes: [{{ name: all, match: {{ protocol: udp }}, egress: [wan] }}]
timeline:
  start: first-packet
  steps:
{steps}"
    )
}

fn down(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let profile = profile("    - { at: 325ms, server: wan, down: 400ms }\n");
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let waiting = applied.counters()?;
    let timeline = &waiting["servers"][0]["timeline"];
    ensure!(
        timeline["segment"] == 0 && timeline["at_s"].is_null(),
        "{timeline}"
    );
    let plan = Plan {
        count: 20,
        interval: Duration::from_millis(50),
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let report = applied.counters()?;
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    // A busy machine sends them later: by when they were sent, but for what is close to a step.
    let at = |sent: u64| (sent - trace.sent[0]) as f64 / MS as f64;
    let lost = trace.lost();
    for (number, &sent) in trace.sent.iter().enumerate() {
        let at = at(sent);
        let near = [325.0, 725.0].iter().any(|step| (at - step).abs() < 15.0);
        let expected = (325.0..725.0).contains(&at);
        ensure!(
            near || lost.contains(&number) == expected,
            "packet {number}, sent at {at} ms: {lost:?} were lost"
        );
    }
    ensure!(
        report["drops"]["down"] == lost.len() && !lost.is_empty(),
        "{} lost, counted {}",
        lost.len(),
        report["drops"]
    );
    let timeline = &report["servers"][0]["timeline"];
    let seconds = timeline["at_s"].as_f64().context("no time in the timeline")?;
    ensure!(
        timeline["segment"] == timeline["segments"] && seconds > 0.9,
        "{timeline}"
    );
    Ok(())
}

fn restart(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let profile = profile("    - { at: 1h, server: wan, latency: 20ms }\n").replace("first-packet", "apply");
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let begun = Instant::now();
    // Both: seconds since the timeline began.
    let change = |options: &[&str]| {
        let asked = Instant::now();
        done(&update(setting, &bed, &profile, options)?)?;
        let at = &applied.counters()?["servers"][0]["timeline"]["at_s"];
        Ok::<_, anyhow::Error>((at.as_f64().context("no time in the timeline")?, asked))
    };
    let (at, _) = change(&[])?;
    let (kept, asked) = change(&[])?;
    ensure!(
        kept > at && kept > (asked - begun).as_secs_f64(),
        "{kept} s behind {at} s"
    );
    let (at, asked) = change(&["--restart-timeline"])?;
    ensure!(at < asked.elapsed().as_secs_f64(), "{at} s behind {kept} s");
    applied.nothing_unintended()?;
    applied.stop()
}

/// What `run --marks` says, and how long it had been running then.
fn marked(setting: &Setting, profile: &str, script: &str) -> Result<Vec<(String, Duration)>> {
    let profile = setting.product.profile(profile)?;
    let begun = Instant::now();
    let mut run = Command::new(&setting.product.path)
        .args(["run", "--marks", "--pacer", setting.pacer.name()])
        .arg(profile)
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting perturb run")?;
    let lines = BufReader::new(run.stderr.take().context("no standard error")?).lines();
    let lines: Vec<_> = lines
        .map(|line| Ok((line?, begun.elapsed())))
        .collect::<Result<_>>()?;
    let ended = run.wait()?;
    ensure!(ended.success(), "{ended}: {lines:?}");
    Ok(lines)
}

fn marks(setting: &Setting) -> Result<()> {
    let steps = profile(
        "    - { at: 300ms, server: wan, latency: 50ms }
    - { at: 700ms, server: wan, down: 200ms }
    - { at: 1s, every: 2ms, for: 1ms, times: 100, server: wan, loss: 1% }
    - { at: 1h, server: wan, latency: 20ms }
",
    );
    let mut expected = vec![
        "0.300 s  wan: latency 50ms".to_owned(),
        "0.700 s  wan: down for 200ms".to_owned(),
        "0.900 s  wan: no longer down".to_owned(),
    ];
    for at in 0..5 {
        expected.push(format!("1.00{} s  wan: loss 1% for 1ms", 2 * at));
        expected.push(format!("1.00{} s  wan: no longer loss 1%", 2 * at + 1));
    }
    expected.push("2.000 s  and 190 more within the last second".to_owned());
    let lines = marked(setting, &steps.replace("first-packet", "apply"), "sleep 3")?;
    let found: Vec<&String> = lines.iter().map(|(line, _)| line).collect();
    ensure!(found == expected.iter().collect::<Vec<_>>(), "{found:#?}");
    for (line, came) in &lines {
        let at: f64 = line.split(' ').next().unwrap_or_default().parse()?;
        ensure!(came.as_secs_f64() >= at, "{line} came after {came:?}");
    }
    // The first packet's clock is marked, too.
    let steps = steps.replace("udp", "icmp");
    let lines = marked(setting, &steps, "sleep 1; ping -4 -c 1 -W 1 h2; sleep 0.5")?;
    let Some((first, came)) = lines.first() else {
        bail!("nothing is marked");
    };
    ensure!(
        *first == expected[0] && came.as_secs_f64() > 1.3,
        "{first} came after {came:?}"
    );
    ensure!(
        marked(setting, &steps, "sleep 1")?.is_empty(),
        "no packet has come"
    );
    Ok(())
}

/// Steps, of a millisecond each.
const STEPS: u64 = 10_000;

/// The latency of a step, ms: one of three, in no order that packets at equal distances could meet.
fn latency(step: u64) -> u64 {
    10 + 2 * ((step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 3)
}

/// Lone packets: what each waits says which step served it.
fn steps(setting: &Setting) -> Result<()> {
    setting.needs_fair_timing()?;
    let mut text = String::new();
    for step in 0..STEPS {
        let latency = latency(step);
        writeln!(
            text,
            "    - {{ at: {step}ms, server: wan, latency: {latency}ms }}"
        )?;
    }
    let text = profile(&text);
    thrice(|| wrong(setting, &text))
}

/// What a packet takes from its sender's clock to the programs at most, beside the first one's, and an error of its pacer.
const NEAR: u64 = 300_000;

/// Packets that a wrong step served, if any.
fn wrong(setting: &Setting, profile: &str) -> Result<Option<String>> {
    let (bed, _) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let plan = Plan {
        count: 1400,
        // Longer than latencies differ by: none waits for another.
        interval: Duration::from_micros(7137),
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    ensure!(trace.lost().is_empty(), "{:?} were lost", trace.lost());
    let mut wrong = Vec::new();
    for (number, (delay, &sent)) in trace.delays().into_iter().zip(&trace.sent).enumerate() {
        let delay = delay.context("a packet was lost")?;
        let at = sent - trace.sent[0];
        // Whenever it came to the programs, it is not early; and it is as late as its step says.
        let last = ((at + delay) / MS).min(STEPS - 1);
        let possible = (at.saturating_sub(NEAR) / MS..=last).any(|step| {
            let came = (step * MS).max(at.saturating_sub(NEAR));
            came + latency(step) * MS <= at + delay + NEAR
        });
        ensure!(possible, "packet {number}, sent at {at} ns, took {delay} ns only");
        let [first, last] = [at.saturating_sub(NEAR), at + NEAR].map(|at| (at / MS).min(STEPS - 1));
        let fits = (first..=last).any(|step| {
            let latency = latency(step) * MS;
            (latency.saturating_sub(NEAR)..latency + MS).contains(&delay)
        });
        if !fits {
            wrong.push(format!("{number}: sent at {at} ns, took {delay} ns"));
        }
    }
    let some = &wrong[..wrong.len().min(5)];
    Ok((!wrong.is_empty()).then(|| format!("{} of {}: {some:?}", wrong.len(), trace.sent.len())))
}
