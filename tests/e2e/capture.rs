//! `perturb capture`: its file as Wireshark reads it (tshark), beside what `status` counts and what was sent.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::{
    bed::{Bed, Host},
    datagrams::{self, Plan},
};
use perturb_verdict::installed;
use tempfile::TempDir;

use crate::{
    harness::{Setting, Test, each, once},
    runs::{run_script, said},
    update::{done, update, wait},
};

pub(crate) const TESTS: &[Test] = &[
    each("capture::tshark_reads_what_befell_packets", read),
    each("capture::legs_of_private_hosts", legs),
    once("capture::one_reader_and_when_it_ends", ends),
    once("capture::its_own_losses_are_counted", losses),
    once("capture::time_without_it_is_said", stopped),
    once("capture::names_follow_a_change", renamed),
];

const PROFILE: &str = "servers: { up: { latency: 30ms, loss: { nth: [3, 5] } }, down: { latency: 10ms } }\n\
                       classes: [{ name: web, match: { port: 7000 }, egress: [up] }, \
                       { name: ping, match: { protocol: icmp }, egress: [up], ingress: [down] }]";

/// A capture that has begun.
struct Capture {
    child: Child,
    folder: TempDir,
}

impl Capture {
    fn begin(setting: &Setting, host: &Host, arguments: &[&str]) -> Result<Self> {
        installed(&["tshark", "capinfos"])?;
        let folder = TempDir::with_prefix("perturb-capture-")?;
        let said = std::fs::File::create(folder.path().join("said"))?;
        let child = setting
            .product
            .on(host)
            .arg("capture")
            .args(arguments)
            .arg("--out")
            .arg(folder.path().join("x.pcapng"))
            .stdin(Stdio::null())
            .stderr(said)
            .spawn()?;
        let capture = Self { child, folder };
        wait("the capture", || Ok(capture.said()?.contains("capturing")))?;
        Ok(capture)
    }

    fn said(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("said"))?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.child.id() as i32), signal)?)
    }

    /// What it said, when it has ended well.
    fn ended(&mut self) -> Result<String> {
        let status = self.child.wait()?;
        let said = self.said()?;
        ensure!(status.success(), "{status}: {said}");
        Ok(said)
    }

    fn stop(&mut self) -> Result<String> {
        self.signal(Signal::SIGINT)?;
        self.ended()
    }

    fn frames(&self) -> Result<Vec<Frame>> {
        frames(&self.folder.path().join("x.pcapng"))
    }
}

/// What tshark says of a frame.
#[derive(Clone, Debug)]
struct Frame {
    interface: String,
    /// Seconds.
    time: f64,
    comment: String,
    id: String,
    verdict: String,
    /// Outbound (2) or inbound (1).
    direction: String,
    /// Of ICMP: type, sequence number, checksum status (1: good).
    icmp: [String; 3],
    length: u64,
}

const FIELDS: [&str; 10] = [
    "frame.interface_name",
    "frame.time_epoch",
    "frame.comment",
    "frame.packet_id",
    "frame.verdict.ebpf_tc",
    "frame.packet_flags_direction",
    "icmp.type",
    "icmp.seq",
    "icmp.checksum.status",
    "frame.len",
];

fn frames(file: &Path) -> Result<Vec<Frame>> {
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(file)
        .args(["-T", "fields", "-E", "separator=|"]);
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    let output = tshark.stdin(Stdio::null()).output().context("tshark")?;
    ensure!(
        output.status.success() && !said_of(&output.stderr).contains("damaged"),
        "{output:?}"
    );
    said(&output)
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('|').collect();
            let [
                interface,
                time,
                comment,
                id,
                verdict,
                direction,
                kind,
                sequence,
                checksum,
                length,
            ] = fields[..]
            else {
                anyhow::bail!("tshark says {line}")
            };
            Ok(Frame {
                interface: interface.into(),
                time: time.parse()?,
                comment: comment.into(),
                id: id.into(),
                verdict: verdict.into(),
                direction: direction.into(),
                icmp: [kind, sequence, checksum].map(Into::into),
                length: length.parse()?,
            })
        })
        .collect()
}

fn said_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn count(frames: &[Frame], beginning: &str) -> u64 {
    let has = |frame: &&Frame| frame.comment.starts_with(beginning);
    frames.iter().filter(has).count() as u64
}

fn ping(bed: &Bed, count: u32) -> Result<()> {
    let line = format!("ping -4 -q -c {count} -i 0.05 -W 2 {}", bed.right.v4);
    bed.left.run(&line).map(drop)
}

/// Twenty pings, two of them lost: each frame says what befell it, and `status` counts as many.
fn read(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let mut capture = Capture::begin(setting, &bed.left, &["--class", "ping"])?;
    // Of a class that is not asked for.
    let plan = Plan {
        count: 5,
        port: 7000,
        ..Plan::default()
    };
    datagrams::send(&bed.left, &bed.right, &plan)?;
    ping(&bed, 20)?;
    let text = capture.stop()?;
    let frames = capture.frames()?;

    // The datagrams were the server's first five packets, so that both are lost among them.
    let report = applied.counters()?;
    let class = |direction: &str, count: &str| {
        let classes = report["classes"].as_array();
        classes
            .and_then(|classes| classes.iter().find(|class| class["name"] == "ping"))
            .and_then(|class| class[direction][count].as_u64())
            .context("no such class")
    };
    ensure!(
        class("egress", "packets")? == 20 && class("egress", "dropped")? == 0,
        "{report}"
    );
    let counts = ["captured", "released", "dropped"].map(|what| count(&frames, &format!("{what}: ")));
    ensure!(
        counts == [40, 40, 0] && frames.len() == 80,
        "the file has {counts:?}: {frames:?}"
    );
    ensure!(
        text.contains("40 packets captured, 40 released, 0 dropped; 0 still held"),
        "{text}"
    );
    each_is_right(&frames)?;

    // The next ones, all classes: the losses are counted per server, so none is left.
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    with_losses(setting, &bed)
}

/// Requests go out over `up`, answers come in over `down`; what is released is what was captured, so much later.
fn each_is_right(frames: &[Frame]) -> Result<()> {
    for frame in frames {
        let (server, millis, interface, direction) = match &*frame.icmp[0] {
            "8" => ("up 30.000 ms", 30.0, "eth0 egress", "2"),
            _ => ("down 10.000 ms", 10.0, "eth0 ingress", "1"),
        };
        ensure!(
            frame.comment.contains("class ping")
                && frame.comment.contains(server)
                && frame.interface == interface
                && frame.direction.ends_with(direction)
                && frame.icmp[2] == "1"
                && frame.length == 98,
            "{frame:?} is not {server} of {interface}, {direction}"
        );
        if frame.comment.starts_with("released: ") {
            let same = |other: &&Frame| other.id == frame.id && other.comment.starts_with("captured: ");
            let captured = frames.iter().find(same).context("it was never captured")?;
            let took = (frame.time - captured.time) * 1e3;
            ensure!(
                captured.icmp == frame.icmp && (millis - 1.0..millis + 200.0).contains(&took),
                "{captured:?} and {frame:?} are {took} ms apart"
            );
            ensure!(frame.comment.contains(" late; "), "{frame:?} is not late at all");
        }
    }
    Ok(())
}

fn with_losses(setting: &Setting, bed: &Bed) -> Result<()> {
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let mut capture = Capture::begin(setting, &bed.left, &["--snaplen", "60"])?;
    ping(bed, 20)?;
    let text = capture.stop()?;
    let frames = capture.frames()?;
    let report = applied.counters()?;
    let counted = [
        report["drops"]["nth_loss"].as_u64(),
        report["balance"]["captured"].as_u64(),
        report["balance"]["released"].as_u64(),
    ];
    let counts = ["captured", "released", "dropped"].map(|what| count(&frames, &format!("{what}: ")));
    let [captured, released, dropped] = counts;
    ensure!(
        counted == [Some(dropped), Some(captured + dropped), Some(released)] && dropped == 2,
        "the file has {counts:?}, status counts {counted:?}: {text}"
    );
    let lost: Vec<&Frame> = frames
        .iter()
        .filter(|frame| {
            frame
                .comment
                .starts_with("dropped: nth_loss at up, class ping; up ")
        })
        .collect();
    let sequence: Vec<&str> = lost.iter().map(|frame| &*frame.icmp[1]).collect();
    ensure!(
        sequence == ["3", "5"] && lost.iter().all(|frame| frame.verdict == "2"),
        "{frames:?}"
    );
    // Cut, and the file says how long they were.
    ensure!(frames.iter().all(|frame| frame.length == 98), "{frames:?}");
    applied.stop()
}

/// A path with legs, on private hosts: one capture of all, one story for each packet, each on its host's interface.
fn legs(setting: &Setting) -> Result<()> {
    installed(&["tshark", "capinfos"])?;
    let folder = TempDir::with_prefix("perturb-capture-")?;
    let profile = "servers: { up: { latency: 20ms, scope: host }, hub: { latency: 10ms, bandwidth: 10Mbit/s } }\n\
                   classes: [{ name: ping, match: { protocol: icmp }, egress: [up, hub], ingress: [up, hub] }]";
    let script = r#"
        "$PERTURB" capture --class ping --out - > "$FOLDER/x.pcapng" 2> "$FOLDER/said" &
        capture=$!
        for attempt in $(seq 300); do
            grep -q capturing "$FOLDER/said" && break
            sleep 0.1
        done
        ping -4 -q -c 10 -i 0.05 h2 > /dev/null || exit 10
        "$PERTURB" on h2 -- ping -4 -q -c 10 -i 0.05 h3 > /dev/null || exit 11
        kill -INT $capture
        wait $capture || exit 12
    "#;
    run_script(setting, profile, script, folder.path())?;
    let text = std::fs::read_to_string(folder.path().join("said"))?;
    ensure!(
        text.contains("standard output: 40 packets captured, 40 released, 0 dropped; 0 still held"),
        "{text}"
    );
    let frames = frames(&folder.path().join("x.pcapng"))?;
    let on = |host: &str| frames.iter().filter(|frame| frame.comment.contains(host)).count();
    // What passes between two hosts is emulated at the one of lower number.
    ensure!(
        frames.len() == 80 && (on("; on h1:"), on("; on h2:")) == (40, 40),
        "{frames:?}"
    );
    for frame in &frames {
        let way = if frame.comment.starts_with("captured: ") {
            "; up 20.000 ms"
        } else {
            "; up 20.000 ms, hub 10."
        };
        ensure!(frame.comment.contains(way), "{frame:?}");
    }
    Ok(())
}

/// A second one is refused, one that was killed is none; it ends by itself after a count, a time, or with the emulation.
fn ends(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let nothing = setting
        .product
        .call(&bed.left, &["capture", "--out", "/dev/null"])?;
    ensure!(
        nothing.code() == 1 && nothing.stderr.contains("nothing is applied"),
        "{nothing:?}"
    );
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let id = applied.counters()?["id"].as_str().context("no id")?.to_owned();
    let mut first = Capture::begin(setting, &bed.left, &[&id])?;
    let second = setting
        .product
        .call(&bed.left, &["capture", "--out", "/dev/null"])?;
    ensure!(
        second.code() == 1 && second.stderr.contains("another process captures the packets"),
        "{second:?}"
    );
    let class = ["capture", "--class", "nosuch", "--out", "/dev/null"];
    let class = setting.product.call(&bed.left, &class)?;
    ensure!(
        class.code() == 2
            && class
                .stderr
                .contains("has no class nosuch; its classes are web, ping"),
        "{class:?}"
    );
    let other = setting
        .product
        .call(&bed.left, &["capture", "nosuch", "--out", "/dev/null"])?;
    ensure!(
        other.code() == 1 && other.stderr.contains(&format!("these are in force: {id}")),
        "{other:?}"
    );
    ping(&bed, 5)?;
    first.signal(Signal::SIGKILL)?;
    first.child.wait()?;
    // It had read three requests' ends at least, and all that is whole can be read.
    ensure!(count(&first.frames()?, "released: ") >= 3, "a killed one's file");

    let mut counting = Capture::begin(setting, &bed.left, &["--count", "7"])?;
    ping(&bed, 5)?;
    counting.ended()?;
    ensure!(counting.frames()?.len() == 7, "{:?}", counting.frames()?);
    let mut timed = Capture::begin(setting, &bed.left, &["--for", "300ms"])?;
    timed.ended()?;
    let mut last = Capture::begin(setting, &bed.left, &[])?;
    applied.stop()?;
    last.ended()?;
    before.must_be_that_of(&bed.left)
}

/// It does not run for a moment, while more packets come than fit.
fn losses(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let profile =
        "servers: { up: { latency: 1ms } }\nclasses: [{ name: all, match: { protocol: udp }, egress: [up] }]";
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let mut capture = Capture::begin(setting, &bed.left, &["--snaplen", "2048"])?;
    capture.signal(Signal::SIGSTOP)?;
    // All at once: the programs go on without the reader for two seconds.
    let plan = Plan {
        count: 1200,
        size: 1400,
        burst: 1200,
        patience: Duration::from_millis(200),
        receive_afterwards: true,
        ..Plan::default()
    };
    datagrams::send(&bed.left, &bed.right, &plan)?;
    capture.signal(Signal::SIGCONT)?;
    let text = capture.stop()?;
    let report = applied.counters()?;
    let told = capture.frames()?.len() as u64;
    let number = |key: &str| report["balance"][key].as_u64().context("no such count");
    let missing = number("captured")? + number("released")? - told;
    ensure!(
        missing > 500
            && text.contains(&format!(
                "{missing} records are missing ({missing} egress, 0 ingress)"
            )),
        "{told} are there, {missing} are not: {text}\n{report}"
    );
    drops_are_in_the_file(&capture, missing)?;
    applied.stop()
}

/// It does not run for longer than the programs go on without it: what they count as lost is not all.
fn stopped(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let mut capture = Capture::begin(setting, &bed.left, &[])?;
    capture.signal(Signal::SIGSTOP)?;
    thread::sleep(Duration::from_secs(3));
    ping(&bed, 5)?;
    capture.signal(Signal::SIGCONT)?;
    thread::sleep(Duration::from_millis(600));
    ping(&bed, 5)?;
    let text = capture.stop()?;
    ensure!(text.contains("are missing, and nobody counted them"), "{text}");
    let captured = count(&capture.frames()?, "captured: ");
    ensure!(
        captured == 10,
        "{captured} of the second five requests and answers are there"
    );
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// The statistics at the file's end: an option 5 of 8 bytes in the first one's block.
fn drops_are_in_the_file(capture: &Capture, missing: u64) -> Result<()> {
    let file = capture.folder.path().join("x.pcapng");
    let output = Command::new("capinfos").arg(&file).output().context("capinfos")?;
    let entries = said(&output).matches("Number of stat entries = 1").count();
    ensure!(entries == 2, "capinfos says {}", said(&output));
    let bytes = std::fs::read(file)?;
    let option = [5u16.to_le_bytes(), 8u16.to_le_bytes()].concat();
    let wanted = [option, missing.to_le_bytes().to_vec()].concat();
    let end = &bytes[bytes.len().saturating_sub(200)..];
    ensure!(
        end.windows(wanted.len()).any(|window| window == wanted),
        "{end:?} lacks {missing}"
    );
    Ok(())
}

/// A class that comes with a changed profile has its name, and the profile before its own.
fn renamed(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, PROFILE, setting.pacer)?;
    let mut capture = Capture::begin(setting, &bed.left, &[])?;
    ping(&bed, 2)?;
    let other = "servers: { north: { latency: 2ms } }\n\
                 classes: [{ name: echo, match: { protocol: icmp }, egress: [north] }]";
    done(&update(setting, &bed, other, &[])?)?;
    ping(&bed, 3)?;
    capture.stop()?;
    let frames = capture.frames()?;
    let has = |text: &str| {
        let found = frames.iter().filter(|frame| frame.comment.contains(text));
        found.count()
    };
    ensure!(
        (
            has("class ping, for 30.000 ms; up"),
            has("class ping, for 10.000 ms; down")
        ) == (2, 2)
            && has("class echo, for 2.000 ms; north 2.000 ms") == 3
            && frames
                .iter()
                .all(|frame| frame.icmp[0] == "8" || frame.icmp[0] == "0"),
        "{frames:?}"
    );
    applied.stop()
}
