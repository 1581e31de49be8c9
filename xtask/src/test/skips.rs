//! Which tests may be skipped where, and why.
//!
//! Model: a test that is skipped says why. On each kind of machine some reasons are to be expected; any other one fails, for a
//! test that runs nowhere would otherwise pass for ever. A machine that is too slow or too busy is an excuse only where a
//! figure is measured.

use super::Stage;

/// Where tests ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) stage: Stage,
    /// Root runs them.
    pub(super) root: bool,
    /// On a machine that set-up has equipped: the variable CI is set.
    pub(super) equipped: bool,
    /// This machine's kernel compiles eBPF programs. The sandbox's interprets them.
    pub(super) compiled: bool,
    /// This machine has several processors. The sandbox has one.
    pub(super) several: bool,
}

/// When a reason is expected.
#[derive(Debug, Clone, Copy)]
enum When {
    /// It depends on the test or on the kernel's version alone.
    Always,
    /// On this machine's kernel, whatever it was built with.
    OwnKernel,
    /// On a kernel that interprets eBPF programs, as that of the sandbox does.
    Interpreted,
    /// On stock kernels with emulated processors.
    Vm,
    /// One processor.
    Single,
    Unprivileged,
    /// On a machine of somebody who did without a part of set-up.
    Unequipped,
}

/// Beginnings of tests' names, parts of reasons, and when they are expected. Nobody expects that perturb was built without its
/// eBPF programs, that a stock kernel lacks sch_fq, or a reason that is new.
const EXPECTED: &[(&str, &str, When)] = &[
    ("", "only root may ", When::Unprivileged),
    ("", " is not installed", When::Unequipped),
    ("sandbox::", "on Debian: apt-get install", When::Unequipped),
    ("sandbox::", "no kernel with modules in", When::Unequipped),
    ("", "this kernel has no ", When::OwnKernel),
    ("", "this machine has no /dev/net/tun", When::OwnKernel),
    ("", "this kernel interprets eBPF programs", When::Interpreted),
    ("", "the sandbox ", When::Interpreted),
    ("", "the sandbox's ", When::Interpreted),
    ("", "bounds are for a kernel with a JIT", When::Interpreted),
    ("", "there is one processor", When::Single),
    ("", "one processor ", When::Single),
    ("", super::vm::UNFIT.1, When::Vm),
    (
        "services_of_docker",
        "docker does not start here",
        When::OwnKernel,
    ),
    ("kept::", "before Linux 6.9 ", When::Always),
    ("hop::", "programs at TCX come before all filters", When::Always),
    (
        "vanish::",
        "perturb's programs are not at the clsact qdisc",
        When::Always,
    ),
    ("refusals::", "this kernel has sch_fq", When::Always),
    ("losses::", "only the user pacer ", When::Always),
    ("losses::", "only the fq pacer ", When::Always),
    (
        "runs::",
        "net.core.netdev_max_backlog is that large already",
        When::Always,
    ),
    (
        "pacer::",
        "perturb may not have real-time priority here",
        When::Unequipped,
    ),
    ("", "only `cargo xtask dist` makes ", When::OwnKernel),
    // Figures: behind the semicolon stands which one.
    ("", "this machine is busy: ", When::Always),
    ("rates::", "this machine carries", When::Always),
    ("losses::", "here, and must take less than", When::Always),
    ("pacer::", "this machine held the sender up", When::Always),
    ("update::", "this machine took ", When::Always),
];

/// What only a figure excuses; it must be named.
const BUSY: &str = "this machine is busy: ";

/// Whether this test may be skipped for this reason here.
pub(super) fn is_expected(test: &str, reason: &str, place: Place) -> bool {
    if reason.starts_with(BUSY) && !reason.contains("; ") {
        return false;
    }
    EXPECTED
        .iter()
        .any(|(begin, part, when)| test.starts_with(begin) && reason.contains(part) && holds(*when, place))
}

fn holds(when: When, place: Place) -> bool {
    match when {
        When::Always => true,
        When::OwnKernel => matches!(place.stage, Stage::Unit | Stage::Host),
        When::Interpreted => place.stage == Stage::Sandbox || (place.stage != Stage::Vm && !place.compiled),
        When::Vm => place.stage == Stage::Vm,
        When::Single => place.stage == Stage::Sandbox || !place.several,
        When::Unprivileged => !place.root,
        When::Unequipped => !place.equipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CI: Place = Place {
        stage: Stage::Host,
        root: true,
        equipped: true,
        compiled: true,
        several: true,
    };

    fn at(stage: Stage) -> Place {
        Place { stage, ..CI }
    }

    #[test]
    fn a_kernel_lacks_things_where_it_is_this_machines() {
        let lacks = |stage| is_expected("delay::lone::fq", "this kernel has no sch_fq", at(stage));
        assert!(lacks(Stage::Host) && lacks(Stage::Unit));
        assert!(!lacks(Stage::Sandbox) && !lacks(Stage::Vm));
    }

    #[test]
    fn who_runs_them_and_what_is_there() {
        let own = Place {
            root: false,
            equipped: false,
            compiled: true,
            several: false,
            ..CI
        };
        for reason in [
            "only root may make namespaces and attach programs",
            "mpicc is not installed",
            "there is one processor",
        ] {
            assert!(is_expected("mpi::alltoall", reason, own), "{reason}");
            assert!(!is_expected("mpi::alltoall", reason, CI), "{reason}");
        }
        let guest = "no `qemu-system-x86_64` in PATH; on Debian: apt-get install qemu-system-x86";
        assert!(is_expected("sandbox::a_test", guest, own) && !is_expected("sandbox::a_test", guest, CI));
    }

    #[test]
    fn emulated_processors_are_slow_in_their_place_only() {
        let reason = crate::test::vm::UNFIT.1;
        assert!(is_expected("delay::lone::fq", reason, at(Stage::Vm)));
        assert!(!is_expected("delay::lone::fq", reason, CI));
    }

    #[test]
    fn a_busy_machine_excuses_a_named_figure() {
        let reason = |figure: &str| format!("this machine is busy: others took 9 % of a processor{figure}");
        assert!(is_expected(
            "tcp::one_flow::fq",
            &reason("; 31 of 100 Mbit/s"),
            CI
        ));
        assert!(!is_expected("tcp::one_flow::fq", &reason(""), CI));
        let held_up = "this machine held the sender up";
        assert!(is_expected("pacer::lateness_drops_nothing", held_up, CI));
        assert!(!is_expected("life::ctrl_c::fq", held_up, CI));
    }

    #[test]
    fn what_nobody_expects() {
        for reason in [
            "perturb was built without its eBPF programs",
            "PERTURB_BIN does not name the perturb executable",
            "no reason in particular",
        ] {
            for stage in [Stage::Unit, Stage::Host, Stage::Sandbox, Stage::Vm] {
                assert!(!is_expected("a::b", reason, at(stage)), "{reason}");
            }
        }
    }
}
