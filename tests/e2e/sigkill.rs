//! SIGKILL at random moments: whatever is interrupted, traffic flows, and the next command leaves nothing behind.
//!
//! PERTURB_KILLS sets how many kills there are (12 by default, 200 with `cargo xtask test --full`), over `apply`, `clear` and `run` in turn and over
//! the pacers. The moments are spread evenly over the time that each command needs here, seeded.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use perturb_stats::SplitMix64;
use perturb_tests::{
    bed::{Bed, INTERFACE},
    clock,
    datagrams::{self, Plan},
    remains::State,
};

use crate::harness::{Setting, Test, each, figure, not_busy};

pub(crate) const TESTS: &[Test] = &[each("sigkill::leaves_nothing_impaired", kills)];

const VARIABLE: &str = "PERTURB_KILLS";
const KILLS: usize = 12;
/// How long `apply` may take to begin on a machine that others use, too.
const BEGINNING: Duration = Duration::from_secs(60);
/// How long traffic may be silent: the lease of 1 s, and what it takes to see that it is not.
const SILENCE: Duration = Duration::from_millis(1_500);
/// Traffic that is silent for so long has stopped, however busy the machine.
const STOPPED: Duration = Duration::from_secs(15);

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Apply,
    Clear,
    Run,
}

const VICTIMS: [Victim; 3] = [Victim::Apply, Victim::Clear, Victim::Run];

fn kills(setting: &Setting) -> Result<()> {
    let kills = match env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE}={text}"))?,
        Err(_) => KILLS,
    };
    let (bed, before) = setting.bed()?;
    let trial = Trial {
        setting,
        bed: &bed,
        before: &before,
    };
    let mut random = SplitMix64::new(2_000);
    // How long each needs when it is left alone, and some more: a kill after the end is a kill at rest.
    let spans = trial.spans()?;
    let mut worst = Duration::ZERO;
    for number in 0..kills {
        let place = number % VICTIMS.len();
        let delay = spans[place].mul_f64(random.fraction());
        let silence = trial
            .kill(VICTIMS[place], delay)
            .with_context(|| format!("kill {number}: {:?} after {delay:?}", VICTIMS[place]))?;
        worst = worst.max(silence);
    }
    figure!(
        "{kills} kills of apply, clear and run by {} within {:?}: nothing left, traffic silent for at most {worst:?}",
        setting.pacer.name(),
        spans
    );
    Ok(())
}

struct Trial<'a> {
    setting: &'a Setting,
    bed: &'a Bed,
    before: &'a State,
}

impl Trial<'_> {
    fn apply(&self) -> Result<Command> {
        let profile = self.setting.product.profile("latency: 2ms")?;
        let mut command = self.setting.product.on(&self.bed.left);
        command
            .arg("apply")
            .arg(profile)
            .args([
                "--iface",
                INTERFACE,
                "--quiet",
                "--lease",
                "1s",
                "--pacer",
                self.setting.pacer.name(),
            ])
            .stderr(Stdio::null());
        Ok(command)
    }

    fn clear(&self) -> Command {
        let mut command = self.setting.product.on(&self.bed.left);
        command
            .args(["clear", "--iface", INTERFACE])
            .stderr(Stdio::null());
        command
    }

    fn run(&self) -> Result<Command> {
        let profile = self.setting.product.profile("latency: 2ms")?;
        let mut command = Command::new(&self.setting.product.path);
        command
            .args(["run", "--pacer", self.setting.pacer.name()])
            .arg(profile)
            .args(["--", "ping", "-q", "-c", "2", "-i", "0.02", "h2"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command)
    }

    /// How long kills of each victim are spread over.
    fn spans(&self) -> Result<[Duration; 3]> {
        let start = Instant::now();
        let applied = self
            .setting
            .product
            .apply(&self.bed.left, "latency: 2ms", self.setting.pacer)?;
        let apply = start.elapsed();
        let start = Instant::now();
        ensure!(self.clear().status()?.success(), "clear failed");
        let clear = start.elapsed();
        applied.ended()?;
        let start = Instant::now();
        ensure!(self.run()?.status()?.success(), "run failed");
        Ok([
            apply.mul_f64(1.5),
            clear.mul_f64(1.2),
            start.elapsed().mul_f64(1.1),
        ])
    }

    /// Kills one command; how long traffic was silent then.
    fn kill(&self, victim: Victim, delay: Duration) -> Result<Duration> {
        let mut owner = None;
        let mut command = match victim {
            Victim::Apply => self.apply()?,
            Victim::Clear => {
                owner = Some(self.applied()?);
                self.clear()
            }
            Victim::Run => self.run()?,
        };
        let mut child = command.spawn()?;
        thread::sleep(delay);
        child.kill()?;
        child.wait()?;
        let watch = clock::Watch::start();
        let silence = self.silence()?;
        let stolen = watch.stolen_share();
        // The next command: not always clear.
        let next = self.clear().stderr(Stdio::piped()).output()?;
        ensure!(next.status.success(), "the next clear failed: {next:?}");
        if let Some(mut owner) = owner {
            // Cleared, whoever did it.
            owner.wait()?;
        }
        self.before.must_be_that_of(&self.bed.left)?;
        let record = format!("/run/perturb/run-{}", child.id());
        ensure!(!fs::exists(&record)?, "{record} is left");
        if silence > SILENCE {
            not_busy(stolen, "silence after a kill")?;
            bail!("no traffic for {silence:?}, longer than the lease of 1 s");
        }
        Ok(silence)
    }

    fn applied(&self) -> Result<Child> {
        let mut child = self.apply()?.spawn()?;
        let pid = u64::from(child.id());
        let own = |report: &serde_json::Value| report["pid"].as_u64() == Some(pid);
        let start = Instant::now();
        while !self.setting.product.status(&self.bed.left)?.iter().any(own) {
            if let Some(status) = child.try_wait()? {
                bail!("perturb apply ended before it began: {status}");
            }
            ensure!(start.elapsed() < BEGINNING, "perturb apply does not begin");
            // The one processor of the sandbox is for `apply`.
            thread::sleep(Duration::from_millis(100));
        }
        Ok(child)
    }

    /// Sends until something arrives.
    fn silence(&self) -> Result<Duration> {
        let start = Instant::now();
        let plan = Plan {
            count: 3,
            patience: Duration::from_millis(40),
            ..Plan::default()
        };
        while datagrams::send(&self.bed.left, &self.bed.right, &plan)?
            .received
            .is_empty()
        {
            ensure!(start.elapsed() < STOPPED, "no traffic for {STOPPED:?}");
        }
        Ok(start.elapsed())
    }
}
