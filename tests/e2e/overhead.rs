//! LogGP's overhead o: processor time of the hosts, not of the network.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use perturb_dataplane::namespace::Namespace;
use perturb_tests::{
    bed::Bed,
    datagrams::{self, Plan, Waiting},
    processors::{TICK, awake, keep_to, soft_interrupts, usable},
};

use crate::{
    harness::{Setting, Test, each, figure, skip},
    runs,
};

pub(crate) const TESTS: &[Test] = &[
    each("overhead::sender_pays_80_us", |setting| {
        setting.fairly(|| sender(setting))
    }),
    each("overhead::each_end_adds_its_own_to_a_lone_packet", |setting| {
        setting.fairly(|| lone(setting))
    }),
    each("overhead::is_burnt_by_the_receivers_processor", |setting| {
        setting.fairly(|| receivers(setting))
    }),
    each("overhead::catches_a_broken_emulator", |setting| {
        setting.catches(|| broken(setting))
    }),
];

const TOLERANCE: f64 = 0.05;
const IDLE: &str = "classes: [{ name: all, match: {}, egress: [] }]";
const SEND: &str = "overhead: { send: 80us }\nclasses: [{ name: all, match: {}, egress: [] }]";

/// Processor time per datagram of a sender that sends without pause, and how many it sends per second.
fn cost(bed: &Bed) -> Result<(f64, f64)> {
    let plan = Plan {
        count: 2_000,
        burst: 2_000,
        receive_afterwards: true,
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    let took = (trace.sent[trace.sent.len() - 1] - trace.sent[0]) as f64;
    Ok((trace.send_cost / 1e3, (trace.sent.len() - 1) as f64 * 1e9 / took))
}

/// How much a profile adds to the processor time of a datagram, microseconds.
fn rise(setting: &Setting, profile: &str) -> Result<f64> {
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox's kernel counts processor time in ticks of 10 ms",
        ));
    }
    let (bed, before) = setting.bed()?;
    // What the programs cost without overhead is not overhead.
    let idle = setting.product.apply(&bed.left, IDLE, setting.pacer)?;
    let (off, off_rate) = cost(&bed)?;
    idle.stop()?;
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let (on, on_rate) = cost(&bed)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    figure!(
        "{profile:.24}…: processor time per packet {off:.2} -> {on:.2} us, rate {off_rate:.0} -> {on_rate:.0} 1/s"
    );
    ensure!(
        on_rate < 1e6 / (on - off),
        "the sender is faster than its overhead allows"
    );
    Ok(on - off)
}

fn is_off(rise: f64) -> bool {
    (rise / 80.0 - 1.0).abs() > TOLERANCE
}

fn sender(setting: &Setting) -> Result<Option<String>> {
    let rise = rise(setting, SEND)?;
    Ok(is_off(rise).then(|| format!("processor time rose by {rise:.2} us, not 80")))
}

fn profile_of(overhead: &str) -> String {
    format!(
        "overhead: {{ send: {overhead}, receive: {overhead} }}\n\
         classes: [{{ name: all, match: {{}}, egress: [], ingress: [] }}]"
    )
}

/// An exchange of two lone packets pays four times: each is sent once and received once.
fn lone(setting: &Setting) -> Result<Option<String>> {
    if !setting.kernel.jit {
        return Err(skip("what the sandbox's interpreter takes varies by more than o"));
    }
    let (bed, before) = setting.bed()?;
    let median = || -> Result<f64> {
        let times = datagrams::ping_pong(&bed.left, &bed.right, 500, 64, Waiting::Polling)?;
        Ok(times.median())
    };
    // What the programs cost without overhead is not overhead.
    let (idle, slow) = (profile_of("0s"), profile_of("80us"));
    let left = setting.product.apply(&bed.left, &idle, setting.pacer)?;
    let right = setting.product.apply(&bed.right, &idle, setting.pacer)?;
    let off_us = median()?;
    left.stop()?;
    let left = setting.product.apply(&bed.left, &slow, setting.pacer)?;
    let one = median()?;
    right.stop()?;
    let right = setting.product.apply(&bed.right, &slow, setting.pacer)?;
    let both = median()?;
    left.stop()?;
    right.stop()?;
    figure!(
        "o 80 us: median round trip {off_us:.1} us without, {one:.1} with one host's, {both:.1} with both hosts'"
    );
    before.must_be_that_of(&bed.left)?;
    let off = |(rise, expected): &(f64, f64)| (rise / expected - 1.0).abs() > 0.15;
    let found = [(one - off_us, 160.0), (both - off_us, 320.0)]
        .into_iter()
        .find(off);
    Ok(found.map(|(rise, expected)| format!("the median rose by {rise:.1} us, not {expected}")))
}

fn broken(setting: &Setting) -> Result<()> {
    let rise = rise(setting, &SEND.replace("80us", "72us"))?;
    ensure!(is_off(rise), "72 us passed for 80 us: {rise:.2}");
    Ok(())
}

/// Between private hosts o_r is burnt by the processor on which the receiver runs, not by the sender's or the pacer's.
fn receivers(setting: &Setting) -> Result<Option<String>> {
    const MESSAGES: u32 = 400;
    const OVERHEAD: Duration = Duration::from_millis(1);
    let &[sends, .., receives] = usable()?.as_slice() else {
        return Err(skip("one processor runs both sender and receiver"));
    };
    let profile = setting.product.profile(
        "overhead: { receive: 1ms, acknowledgments: free }\n\
         servers: { wire: { latency: 1ms } }\n\
         classes: [{ name: all, match: {}, egress: [wire], ingress: [wire] }]",
    )?;
    let mut run = Command::new(&setting.product.path)
        .args(["run", "--pacer", setting.pacer.name()])
        .arg(profile)
        .args(["--", "sh", "-c", "echo up; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting perturb run")?;
    let mut line = String::new();
    BufReader::new(run.stdout.take().context("no output")?).read_line(&mut line)?;
    let host = |name: &str| {
        let command = *runs::descendants(run.id())
            .last()
            .context("perturb run has no command")?;
        Namespace::open(format!("/proc/{command}/root/run/netns/{name}").as_ref())
            .with_context(|| format!("opening {name}"))
    };
    let (h1, h2) = (host("h1")?, host("h2")?);
    let listener = h2.enter(|| TcpListener::bind(("10.77.0.2", 0)))??;
    let address = listener.local_addr()?;
    let stream = h1.enter(|| TcpStream::connect(address))??;
    let (peer, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let before = soft_interrupts()?;
    let exchange = || {
        thread::scope(|scope| -> Result<()> {
            let receiver = scope.spawn(|| -> Result<()> {
                keep_to(receives)?;
                let mut peer = peer;
                let mut byte = [0];
                for _ in 0..MESSAGES {
                    peer.read_exact(&mut byte)?;
                    peer.write_all(&byte)?;
                }
                Ok(())
            });
            let sender = scope.spawn(|| -> Result<()> {
                keep_to(sends)?;
                let mut stream = stream;
                let mut byte = [0];
                for message in 0..MESSAGES {
                    // The kernel's ticks must fall on all parts of an exchange alike: the golden ratio's multiples spread evenly.
                    thread::sleep(TICK.mul_f64((f64::from(message) * 0.618_033_988_749_895).fract()));
                    stream.write_all(&byte)?;
                    stream.read_exact(&mut byte)?;
                }
                Ok(())
            });
            sender
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            receiver
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    awake(&[sends, receives], exchange)?;
    let after = soft_interrupts()?;
    drop(run.stdin.take());
    run.wait()?;
    let burnt = |processor: usize| {
        let of = |all: &[Duration]| all.get(processor).copied().unwrap_or_default();
        of(&after).saturating_sub(of(&before))
    };
    let (sender, receiver, asked) = (burnt(sends), burnt(receives), OVERHEAD * MESSAGES);
    figure!(
        "o_r 1 ms, {MESSAGES} messages each way: soft interrupts took {sender:?} of h1's processor, {receiver:?} of h2's"
    );
    let off = |(_, found): &(_, Duration)| !(0.75..1.4).contains(&found.div_duration_f64(asked));
    let found = [("h1", sender), ("h2", receiver)].into_iter().find(off);
    Ok(found.map(|(host, found)| format!("{host}'s processor burnt {found:?}, not {asked:?}")))
}
