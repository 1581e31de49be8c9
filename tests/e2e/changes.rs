//! Servers that change: steps that drop, and ten thousand of a millisecond each.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use perturb_clock as clock;
use perturb_common::lead;
use perturb_tests::datagrams::{self, Plan, Waiting};

use crate::{
    harness::{Setting, Test, each, figure, slow, thrice},
    update::{done, update},
};

pub(crate) const TESTS: &[Test] = &[
    each("changes::what_is_down_drops", down),
    each("changes::ten_thousand_steps", steps),
    each("changes::apply_keeps_the_clock_or_restarts_it", restart),
    each("changes::run_marks_steps", marks),
    each("changes::overheads_change", |setting| {
        thrice(|| overheads(setting))
    }),
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

/// By turns of 200 ms nothing, and then what sending and receiving cost: lone packets out, and there and back.
fn overheads(setting: &Setting) -> Result<Option<String>> {
    let (bed, before) = setting.bed()?;
    let profile = "version: 1
classes: [{ name: all, match: { protocol: udp }, egress: [], ingress: [] }]
timeline:
  start: first-packet
  repeat: 400ms
  steps: [{ at: 200ms, overhead: { send: 1ms, receive: 500us } }]
";
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let interval = Duration::from_millis(17);
    let plan = Plan {
        count: 60,
        interval,
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    ensure!(trace.lost().is_empty(), "{:?} were lost", trace.lost());
    let delays: Vec<u64> = trace.delays().into_iter().flatten().collect();
    let sent = trace.sent.iter().copied().zip(&delays);
    // When each began and ended, and what it took.
    let out: Vec<[u64; 3]> = sent.map(|(at, &delay)| [at, at + delay, delay]).collect();
    let mut back = Vec::new();
    for _ in 0..60 {
        let at = clock::now();
        let times = datagrams::ping_pong(&bed.left, &bed.right, 2, 64, Waiting::Asleep)?;
        back.push([at, clock::now(), (times.min() * 1e3) as u64]);
        thread::sleep(interval);
    }
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    for (times, cost) in [(out, MS), (back, 3 * MS / 2)] {
        let (mut free, mut paid) = (Vec::new(), Vec::new());
        for [at, end, took] in times {
            // The clock has begun when the first packet came to the programs.
            let began = (at - trace.sent[0]) % (400 * MS);
            let ended = began + end - at;
            if began > delays[0] && ended < 200 * MS {
                free.push(took);
            } else if began > 200 * MS + delays[0] && ended < 400 * MS {
                ensure!(took >= cost, "begun at {began} ns: {took} ns, not {cost} more");
                paid.push(took);
            }
        }
        if free.len() < 5 || paid.len() < 5 {
            return Ok(Some(format!("without: {free:?} ns, with: {paid:?} ns")));
        }
        let median = |mut times: Vec<u64>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let (free, paid) = (median(free), median(paid));
        figure!("o {cost} ns: median {free} ns without, {paid} ns with it");
        if (paid.saturating_sub(free) as f64 / cost as f64 - 1.0).abs() > 0.15 {
            return Ok(Some(format!("the median rose from {free} to {paid} ns")));
        }
    }
    Ok(None)
}

/// Steps, of a millisecond each.
const STEPS: u64 = 10_000;

/// The latency of a step, ms: one of three, in no order that packets at equal distances could meet.
fn latency(step: u64) -> u64 {
    10 + 2 * ((step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 3)
}

/// Lone packets: what each waits says which step served it.
fn steps(setting: &Setting) -> Result<()> {
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

/// What the receiver's stamp, which is of another clock, is wrong by at most.
const NEAR: u64 = 100_000;

/// Of a hundred packets so many may be later than their steps say, if the pacer says that it let one go so late.
const LATE_SHARE: usize = 1;
/// The same where processors are emulated: a tenth are, and by steps of others a third would be, and a third early.
const SLOW_LATE_SHARE: usize = 20;

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
    let report = applied.counters()?;
    applied.stop()?;
    ensure!(trace.lost().is_empty(), "{:?} were lost", trace.lost());
    let latest = report["lateness"]["max_us"].as_f64().context("no lateness")?;
    let latest = (latest * 1000.0) as u64;
    let began = &report["servers"][0]["timeline"]["began_ns"];
    let began = began.as_u64().context("the timeline has not begun")?;
    let lead = lead::MOST.0;
    ensure!(
        (trace.sent[0] - lead..trace.sent[1]).contains(&began),
        "the timeline began at {began}, and not with the packet sent at {}",
        trace.sent[0]
    );
    let (mut certain, mut late) = (0, 0);
    let mut wrong = Vec::new();
    for (number, delay) in trace.delays().into_iter().enumerate() {
        let (sent, gone) = (trace.sent[number], trace.gone[number]);
        let left = sent + delay.context("a packet was lost")? - began;
        // The programs had it in between, and moved it ahead by the lead; the first one began the timeline.
        let [first, last] = [sent - lead, gone].map(|at| at.saturating_sub(began));
        let last = if number == 0 { 0 } else { last };
        // When it came at the earliest and at the latest, and its latency, if this step served it.
        let served = |step: u64| {
            let until = if step + 1 < STEPS { (step + 1) * MS } else { last };
            [first.max(step * MS), last.min(until), latency(step) * MS]
        };
        let [lowest, highest] = [first, last].map(|at| (at / MS).min(STEPS - 1));
        let mut steps = (lowest..=highest).map(served);
        certain += usize::from(lowest == highest);
        let is_early = |[first, _, latency]: [u64; 3]| left + NEAR < first + latency;
        ensure!(
            !steps.clone().all(is_early),
            "packet {number}, sent {first} ns after the timeline began, left at {left} ns already"
        );
        // Another step's latency is 2 ms more or less.
        let is_on_time = |[first, _, latency]: [u64; 3]| left + NEAR < first + latency + 2 * MS;
        if steps.clone().any(|times| !is_early(times) && is_on_time(times)) {
            continue;
        }
        late += 1;
        let is_pacers = |[_, last, latency]: [u64; 3]| left < last + latency + latest + NEAR;
        if !steps.any(|times| !is_early(times) && is_pacers(times)) {
            wrong.push(format!(
                "{number}: came after {first} to {last} ns, left at {left} ns"
            ));
        }
    }
    let count = trace.sent.len();
    figure!(
        "of {count} packets, {certain} of which came in one step: {} by a wrong step, {late} late; the pacer at most {latest} ns",
        wrong.len()
    );
    if !wrong.is_empty() {
        let some = &wrong[..wrong.len().min(5)];
        return Ok(Some(format!("{} by a wrong step: {some:?}", wrong.len())));
    }
    let most = if slow() { SLOW_LATE_SHARE } else { LATE_SHARE };
    Ok((late * 100 > most * count || certain * 10 < count)
        .then(|| format!("{late} of {count} packets were late, {certain} came in one step for certain")))
}
