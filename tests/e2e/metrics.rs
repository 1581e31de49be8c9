//! `--metrics`: what Prometheus and its tools make of it, and what it costs the emulation.

use std::{
    fs,
    io::{Read, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::bed::Bed;
use perturb_verdict::installed;
use tempfile::TempDir;

use crate::{
    harness::{Setting, Test, each, figure, once, skip},
    runs::said,
    update::{delay, wait},
};

pub(crate) const TESTS: &[Test] = &[
    each("metrics::prometheus_scrapes_them", scraped),
    once("metrics::an_address_in_use_is_refused", in_use),
    once("metrics::of_private_hosts", of_run),
];

pub(crate) const ALONE: &[Test] = &[each("metrics::load_does_not_delay_the_lease", load)];

const ADDRESS: &str = "127.0.0.1:9464";
const PROFILE: &str = "servers: { up: { latency: 40ms, bandwidth: 100Mbit/s } }\n\
                       classes: [{ name: all, egress: [up] }]";

/// A bed whose left host has a loopback.
fn bed(setting: &Setting) -> Result<Bed> {
    let (bed, _) = setting.bed()?;
    bed.left.run("ip link set lo up")?;
    Ok(bed)
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An answer of HTTP: its head and its body.
fn get(target: &str, accept: &str) -> Result<(String, String)> {
    get_as(ADDRESS, target, accept)
}

fn get_as(host: &str, target: &str, accept: &str) -> Result<(String, String)> {
    let mut stream = TcpStream::connect(ADDRESS)?;
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n"
    )?;
    answer(&mut stream)
}

/// The head and the body of an answer of HTTP, behind which the connection ends.
pub(crate) fn answer(stream: &mut impl Read) -> Result<(String, String)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer without end of head")?;
    Ok((head.into(), body.into()))
}

/// The value of a sample.
fn value(metrics: &str, sample: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample));
    Ok(line
        .with_context(|| format!("no {sample} in {metrics}"))?
        .trim()
        .parse()?)
}

/// What is scraped is what was sent; promtool has nothing to say against it, and a Prometheus stores it.
fn scraped(setting: &Setting) -> Result<()> {
    const SENT: &str = r#"perturb_class_packets_total{class="all",direction="egress"} "#;
    let bed = bed(setting)?;
    let applied = setting
        .product
        .apply_with(&bed.left, PROFILE, setting.pacer, &["--metrics", ADDRESS])?;
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    let get = |target: &str, accept: &str| bed.left.enter(|| get(target, accept))?;
    let (head, plain) = get("/metrics", "*/*")?;
    ensure!(
        head.starts_with("HTTP/1.1 200") && head.contains("version=0.0.4"),
        "{head}"
    );
    let report = applied.counters()?;
    let packets = report["classes"][0]["egress"]["packets"].as_f64();
    ensure!(
        Some(value(&plain, SENT)?) == packets && packets >= Some(5.0),
        "{report}: {plain}"
    );
    ensure!(
        value(&plain, "perturb_lateness_seconds_count ")? >= 5.0,
        "{plain}"
    );
    let (head, open) = get("/metrics", "application/openmetrics-text; version=1.0.0")?;
    ensure!(
        head.contains("application/openmetrics-text") && open.ends_with("# EOF\n"),
        "{head}\n{open}"
    );
    let (head, problem) = get("/nosuch", "*/*")?;
    ensure!(
        head.starts_with("HTTP/1.1 404") && head.contains("problem+json"),
        "{head}\n{problem}"
    );
    let (head, problem) = bed
        .left
        .enter(|| get_as("rebound.example", "/metrics", "*/*"))??;
    ensure!(head.starts_with("HTTP/1.1 421"), "{head}\n{problem}");

    if !setting.kernel.jit {
        return Err(skip("the sandbox takes minutes to start Prometheus"));
    }
    installed(&["prometheus", "promtool"])?;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = promtool.stdin.take().context("promtool reads nothing")?;
    input.write_all(plain.as_bytes())?;
    drop(input);
    let checked = promtool.wait_with_output()?;
    ensure!(
        checked.status.success() && said(&checked).is_empty() && checked.stderr.is_empty(),
        "{checked:?}"
    );

    let place = TempDir::with_prefix("perturb-prometheus-")?;
    let config = place.path().join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms }}\n\
         scrape_configs: [{{ job_name: perturb, static_configs: [{{ targets: ['{ADDRESS}'] }}] }}]\n"
    );
    fs::write(&config, text)?;
    let prometheus = bed
        .left
        .command("prometheus")
        .arg("--config.file")
        .arg(&config)
        .arg("--storage.tsdb.path")
        .arg(place.path().join("data"))
        .arg("--web.listen-address=127.0.0.1:9090")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let _prometheus = Killed(prometheus);
    let mut answer = String::new();
    let query = |asked: &str| -> Result<String> {
        let output = bed
            .left
            .command("promtool")
            .args(["query", "instant", "http://127.0.0.1:9090", asked])
            .output()?;
        Ok(said(&output))
    };
    wait("Prometheus has scraped it", || {
        answer = query(r#"perturb_class_packets_total{class="all",direction="egress"}"#)?;
        Ok(answer.contains("perturb_class_packets_total"))
    })?;
    let stored = answer.split("=> ").nth(1).and_then(|rest| rest.split(' ').next());
    ensure!(
        stored.and_then(|stored| stored.parse().ok()) == packets,
        "{answer}"
    );
    let up = query("up")?;
    ensure!(up.contains("=> 1 "), "{up}");
    applied.stop()
}

/// Nothing is emulated then.
fn in_use(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    bed.left.run("ip link set lo up")?;
    let _taken = bed.left.enter(|| std::net::TcpListener::bind(ADDRESS))??;
    let profile = setting.product.profile(PROFILE)?.display().to_string();
    for more in [&[][..], &["--detach"]] {
        let apply = [
            &["apply", &profile, "--iface", "eth0", "--metrics", ADDRESS],
            more,
        ]
        .concat();
        let called = setting.product.call(&bed.left, &apply)?;
        ensure!(called.code() == 1, "{called:?}");
        ensure!(
            called.stderr.contains("cannot listen on 127.0.0.1:9464"),
            "{called:?}"
        );
    }
    before.must_be_that_of(&bed.left)
}

/// `run` answers in the namespace in which it was called, while its command runs.
fn of_run(setting: &Setting) -> Result<()> {
    let bed = bed(setting)?;
    let run = setting
        .product
        .on(&bed.left)
        .args(["run", "--pacer", "user", "--metrics", ADDRESS])
        .arg(setting.product.profile(PROFILE)?)
        .args(["--", "sh", "-c", "ping -c 3 -i 0.2 -q h2 && read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut run = Killed(run);
    wait("its packets are counted", || {
        let answer = bed.left.enter(|| get("/metrics", "*/*"))?;
        let Ok((_, metrics)) = answer else {
            return Ok(false);
        };
        let sent = value(
            &metrics,
            r#"perturb_class_packets_total{class="all",direction="egress"} "#,
        );
        Ok(sent.is_ok_and(|packets| packets >= 3.0))
    })?;
    drop(run.0.stdin.take());
    run.0.wait()?;
    ensure!(
        bed.left.enter(|| get("/metrics", "*/*"))?.is_err(),
        "it answers when the command has ended"
    );
    Ok(())
}

/// Programs that ask as often as they can, and others that never read or never ask, cost the emulation nothing: the lease is
/// renewed, and packets are late as they were.
fn load(setting: &Setting) -> Result<()> {
    const TIME: Duration = Duration::from_secs(4);
    let bed = bed(setting)?;
    let options = ["--metrics", ADDRESS, "--lease", "1s"];
    let applied = setting
        .product
        .apply_with(&bed.left, PROFILE, setting.pacer, &options)?;
    let (over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let ask_on = || -> Result<()> {
        while !over.load(Ordering::Relaxed) {
            // Answers may be refused to those who ask too much.
            let answered = get("/metrics", "*/*").is_ok_and(|(head, _)| head.starts_with("HTTP/1.1 200"));
            answers.fetch_add(u64::from(answered), Ordering::Relaxed);
        }
        Ok(())
    };
    let stay = || -> Result<Vec<TcpStream>> {
        let ask = |asks| {
            let mut stream = TcpStream::connect(ADDRESS)?;
            if asks {
                write!(stream, "GET /metrics HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n")?;
            }
            anyhow::Ok(stream)
        };
        (0..40).map(|number| ask(number % 2 == 0)).collect()
    };
    let _silent = bed.left.enter(stay)??;
    let least = thread::scope(|scope| -> Result<u64> {
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(|| bed.left.enter(ask_on)?)).collect();
        let start = Instant::now();
        let mut least = u64::MAX;
        let watched = (|| {
            while start.elapsed() < TIME {
                ensure!(delay(&bed)? > 30.0, "packets pass untouched");
                let left = applied.counters()?["lease_left_ms"].as_u64();
                least = least.min(left.context("there is no lease")?);
            }
            Ok(())
        })();
        over.store(true, Ordering::Relaxed);
        for asker in askers {
            asker.join().map_err(|_| anyhow::anyhow!("an asker panicked"))??;
        }
        watched.map(|()| least)
    })?;
    let report = applied.counters()?;
    ensure!(
        report["events"]["lease_expired"] == 0,
        "the lease has run out: {report}"
    );
    let answers = answers.load(Ordering::Relaxed);
    let rate = answers / TIME.as_secs();
    figure!("{rate} answers a second; at least {least} ms of the lease of 1 s were left");
    // How many are answered beside connections that never end is no promise; how many ask is the load.
    ensure!(answers > 0, "nobody is answered");
    applied.nothing_unintended()?;
    applied.stop()
}
