//! Runs tests, each for each pacer, and counts what could not be tested.
//!
//! Model: a test that measures, or that looks at what the whole machine has, runs *alone*. The others run beside each other,
//! each thread with records of its own: a mount namespace with an empty /run/perturb and /run/netns. They wait most of the time.

use std::{
    cell::Cell,
    env, fs,
    process::{Command, ExitCode},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use perturb_common::lead;
use perturb_dataplane::machine;
use perturb_tests::{
    bed::Bed,
    clock,
    kernel::Kernel,
    product::{Pacer, Product},
    remains::State,
};
use perturb_verdict::{Skip, fit, quiet, record, root};
pub(crate) use perturb_verdict::{not_busy, skip, slow, thrice};

/// Prints a measured figure.
macro_rules! figure {
    ($($arguments:tt)*) => { println!("    figure: {}", format_args!($($arguments)*)) };
}
pub(crate) use figure;

/// How long a test may take unmentioned.
const LONG: Duration = Duration::from_secs(2);

/// A test.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Setting) -> Result<()>,
    pub(crate) pacers: Pacers,
    /// It runs only if asked for by `--include-ignored` (`cargo xtask test --full`, or a filter).
    pub(crate) long: bool,
}

impl Test {
    /// The test takes too long for every run.
    pub(crate) const fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

/// How often a test runs.
#[derive(Clone, Copy)]
pub(crate) enum Pacers {
    /// Once with each that emulates on interfaces.
    Each,
    /// Once with each, that between private hosts only, too.
    Hosts,
    /// Once, with the switch.
    Switch,
    /// Once: it does not depend on the pacer.
    Any,
}

/// A test that runs with each pacer.
pub(crate) const fn each(name: &'static str, run: fn(&Setting) -> Result<()>) -> Test {
    Test {
        name,
        run,
        pacers: Pacers::Each,
        long: false,
    }
}

/// A test of private hosts, which runs with each pacer.
pub(crate) const fn hosts(name: &'static str, run: fn(&Setting) -> Result<()>) -> Test {
    Test {
        name,
        run,
        pacers: Pacers::Hosts,
        long: false,
    }
}

/// A test of private hosts that the switch joins.
pub(crate) const fn switch(name: &'static str, run: fn(&Setting) -> Result<()>) -> Test {
    Test {
        name,
        run,
        pacers: Pacers::Switch,
        long: false,
    }
}

/// A test that runs once.
pub(crate) const fn once(name: &'static str, run: fn(&Setting) -> Result<()>) -> Test {
    Test {
        name,
        run,
        pacers: Pacers::Any,
        long: false,
    }
}

/// What a test gets.
pub(crate) struct Setting {
    pub(crate) test: &'static str,
    pub(crate) product: Product,
    pub(crate) kernel: Kernel,
    pub(crate) pacer: Pacer,
}

impl Setting {
    /// Two hosts, and how they look before the test.
    pub(crate) fn bed(&self) -> Result<(Bed, State)> {
        let bed = Bed::new()?;
        let state = State::of(&bed.left)?;
        Ok((bed, state))
    }

    /// perturb, by the user who is to run it with this pacer.
    pub(crate) fn perturb(&self) -> Result<Command> {
        self.product.command(self.pacer)
    }

    /// How early a packet may be, microseconds: the pacers make up for their timer's lateness, the user pacer for the receiver's
    /// wake-up, too; a timer that is less late at once, or a receiver that is awake, makes what is held early by as much.
    pub(crate) fn early_us(&self) -> f64 {
        lead::MOST.0 as f64 / 1e3
    }

    /// Skips a test whose bounds are not meant for here: the user pacer is another process, and the
    /// sandbox has one processor for sender, receiver and pacer, and interprets programs.
    pub(crate) fn needs_fair_timing(&self) -> Result<()> {
        fit()?;
        if self.pacer != Pacer::Fq && !self.kernel.jit {
            return Err(skip(
                "the user pacer's bounds are for a kernel with a JIT and a second processor",
            ));
        }
        quiet(self.test)
    }

    /// Measures a figure ([`thrice`]) on a machine that does nothing else: not at all while others take the processors.
    pub(crate) fn fairly(&self, measure: impl Fn() -> Result<Option<String>>) -> Result<()> {
        self.needs_fair_timing()?;
        thrice(measure)
    }

    /// Checks that a wrong figure is found, each time; not while others take the processors.
    pub(crate) fn catches(&self, test: impl Fn() -> Result<()>) -> Result<()> {
        self.needs_fair_timing()?;
        let watch = clock::Watch::start();
        let caught = test();
        if caught.is_err() {
            not_busy(watch.stolen_share(), self.test)?;
        }
        caught
    }
}

/// The moments of so many at which something is tried: on a slow machine a quarter of them, over the same time.
pub(crate) fn moments(count: u64) -> impl Iterator<Item = u64> {
    (0..count).step_by(if slow() { 4 } else { 1 })
}

/// How many tests run beside each other.
const TOGETHER: usize = 4;

/// Runs the tests that the command line selects: those `together` first, then those that run alone.
pub(crate) fn run(together: &[Test], alone: &[Test]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    for variable in ["SUDO_UID", "SUDO_GID"] {
        // Otherwise what `perturb run` starts is not root's.
        // SAFETY: this process has one thread.
        unsafe { env::remove_var(variable) };
    }
    // Under `nohup` perturb would not end by it, as it must not then; the tests look at that themselves.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    let of =
        |tests: &[Test], shared| -> Vec<_> { tests.iter().flat_map(|test| trials(test, shared)).collect() };
    // One emulated processor, or several slow ones, are busy with one test.
    let is_fast = !slow() && thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    if arguments.list || !is_fast || arguments.test_threads == Some(1) {
        arguments.test_threads = Some(1);
        return libtest_mimic::run(&arguments, of(&[together, alone].concat(), false)).exit_code();
    }
    arguments.test_threads = Some(TOGETHER);
    let raised = machine::ALL.map(Raised::new);
    let first = libtest_mimic::run(&arguments, of(together, true));
    drop(raised);
    arguments.test_threads = Some(1);
    let second = libtest_mimic::run(&arguments, of(alone, false));
    if first.has_failed() {
        first.exit_code()
    } else {
        second.exit_code()
    }
}

/// A setting of the whole machine, raised so that no emulation raises it, and puts it back while another one needs it.
struct Raised {
    setting: &'static machine::Setting,
    /// What it was, unless it cannot be set.
    before: Option<u32>,
}

impl Raised {
    fn new(setting: &'static machine::Setting) -> Self {
        let before = setting.read().ok().filter(|&before| before < setting.least);
        Self {
            setting,
            before: before.filter(|_| setting.write(setting.least).is_ok()),
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = self.setting.write(before)
        {
            println!(
                "net.core.{} stays {}: {error}",
                self.setting.name, self.setting.least
            );
        }
    }
}

/// Gives this thread, and the programs that it starts, records and names of namespaces of their own.
fn own_records() -> Result<()> {
    thread_local! { static OWN: Cell<bool> = const { Cell::new(false) }; }
    if OWN.get() {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace")?;
    let mount_on = |target: &str, kind: Option<&str>, flags| {
        mount(None::<&str>, target, kind, flags, None::<&str>)
            .with_context(|| format!("mounting on {target}"))
    };
    mount_on("/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE)?;
    for directory in ["/run/perturb", "/run/netns"] {
        fs::create_dir_all(directory).with_context(|| format!("making {directory}"))?;
        mount_on(directory, Some("tmpfs"), MsFlags::empty())?;
    }
    OWN.set(true);
    Ok(())
}

/// A trial for each pacer. One that is `shared` runs beside others.
fn trials(test: &Test, shared: bool) -> Vec<Trial> {
    let Test {
        name: test,
        run,
        pacers,
        long,
    } = *test;
    let trial = |name: String, pacer: Option<Pacer>| {
        Trial::ignorable_test(name.clone(), move || {
            let start = Instant::now();
            let result = setting(test, pacer).and_then(|setting| {
                if shared {
                    own_records()?;
                }
                run(&setting)
            });
            let took = start.elapsed();
            if took > LONG {
                figure!("{name} took {:.0} s", took.as_secs_f64());
            }
            conclude(&name, result)
        })
        .with_ignored_flag(long)
    };
    let with: &[Pacer] = match pacers {
        Pacers::Each => &[Pacer::Fq, Pacer::User],
        Pacers::Hosts => &[Pacer::Fq, Pacer::User, Pacer::Switch],
        Pacers::Switch => &[Pacer::Switch],
        Pacers::Any => return vec![trial(test.into(), None)],
    };
    with.iter()
        .map(|&pacer| trial(format!("{test}::{}", pacer.name()), Some(pacer)))
        .collect()
}

fn conclude(name: &str, result: Result<()>) -> Result<Completion, Failed> {
    let error = match result {
        Ok(()) => return Ok(Completion::Completed),
        Err(error) => error,
    };
    let Some(reason) = Skip::reason(&error) else {
        println!("FAILED: {error:#}");
        return Err(Failed::from(format!("{error:#}")));
    };
    println!("SKIPPED: {reason}");
    match record(name, reason) {
        Ok(true) => Ok(Completion::Completed),
        Ok(false) => Ok(Completion::ignored_with(reason)),
        Err(error) => Err(Failed::from(format!("the reason cannot be left: {error}"))),
    }
}

fn setting(test: &'static str, pacer: Option<Pacer>) -> Result<Setting> {
    let kernel = kernel()?;
    let product = Product::find().map_err(|error| skip(error.to_string()))?;
    let usable = |pacer| match pacer {
        Pacer::Fq if !kernel.fq => Err("this kernel has no sch_fq"),
        Pacer::User | Pacer::Switch if !kernel.tun => Err("this machine has no /dev/net/tun"),
        pacer => Ok(pacer),
    };
    let pacer = match pacer {
        Some(pacer) => usable(pacer),
        None => usable(Pacer::Fq).or_else(|_| usable(Pacer::User)),
    };
    Ok(Setting {
        test,
        product,
        kernel,
        pacer: pacer.map_err(skip)?,
    })
}

fn kernel() -> Result<Kernel> {
    static KERNEL: OnceLock<Arc<Result<Kernel>>> = OnceLock::new();
    let probed = KERNEL.get_or_init(|| {
        let probe = || Kernel::probe(&Bed::new()?.left);
        Arc::new(root().and_then(|()| probe().context("making a test bed")))
    });
    match &**probed {
        Ok(kernel) => Ok(*kernel),
        Err(error) => Err(Skip::reason(error).map_or_else(|| anyhow::anyhow!("{error:#}"), skip)),
    }
}
