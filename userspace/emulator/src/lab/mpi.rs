//! `perturb run --mpi`: a program over the private hosts, or over machines, one rank on each or several.
//!
//! mpirun (Open MPI 4) runs on h1 and starts a daemon on each other host through `perturb agent`, where it would use
//! ssh. It takes the private hosts for machines of their own, since each has a name of its own, so what it must be
//! told is what it cannot find out: that their processes share this machine's processors (no binding, and a rank that
//! waits yields), and that messages go over the emulated wire (TCP between the hosts' addresses; no shared memory).
//!
//! Ranks on the same host talk over its loopback interface, which is not emulated.
//!
//! What it lacks: other MPI implementations.

use std::{
    env,
    ffi::{OsStr, OsString},
};

use super::{PREFIXES, addresses, evenly, name, view::EXECUTABLE};

/// The program that starts ranks.
pub const LAUNCHER: &str = "mpirun";
/// Where it comes from.
pub const PACKAGE: &str = "apt-get install openmpi-bin (Open MPI, on Debian)";

/// What mpirun is told about the private hosts.
const SETTINGS: [(&str, &str); 5] = [
    ("pml", "ob1"),
    ("btl", "tcp,self"),
    ("mpi_yield_when_idle", "1"),
    // h1 starts all daemons.
    ("plm_rsh_no_tree_spawn", "1"),
    // The hosts are network namespaces, which have no cgroup or topology of their own to look for.
    ("hwloc_base_binding_policy", "none"),
];

/// What makes MPI's times exact, unless the user's environment says otherwise (`OMPI_MCA_` and the name). A rank that
/// waits looks for messages from TCP every 20 us; by default it may look first when 10 ms have passed (libevent's
/// clock, `opal_progress_set_event_poll_rate`), and a message that takes 1 ms seems to take 5.
const TIMES: [(&str, &str); 1] = [("mpi_event_tick_rate", "20")];
/// What starts a daemon on another machine.
const AGENT: &str = "plm_rsh_agent";
/// What the environment's names of MCA parameters begin with.
const ENVIRONMENT: &str = "OMPI_MCA_";

/// Why an MPI program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum MpiError {
    /// No launcher.
    #[error(
        "--mpi: there is no {LAUNCHER} in PATH; install Open MPI (on Debian `apt-get install openmpi-bin`)"
    )]
    NoLauncher,
}

/// The command that runs `program` with so many ranks on `hosts` hosts, for h1; without a number one on each. `has_guests`: whether some
/// are no private hosts, so that nothing ends daemons but what has started them.
///
/// # Errors
/// When there is no launcher.
pub fn command(
    hosts: u32,
    ranks: Option<u32>,
    has_guests: bool,
    program: Vec<OsString>,
) -> Result<Vec<OsString>, MpiError> {
    let mut agent = OsString::from(EXECUTABLE);
    // Daemons look for it, too, and use none: on a machine that is a host itself they find the second one.
    agent.push(" agent : sh");
    let all: Vec<Machine> = (1..=hosts).map(|number| Machine(name(number))).collect();
    let (network, _) = addresses(0);
    let wire = OsString::from(format!("{network}/{}", PREFIXES.0));
    let wire = wire.as_os_str();
    let mut more = vec![
        ("btl_tcp_if_include", wire),
        ("oob_tcp_if_include", wire),
        (AGENT, &agent),
        // Inside of a batch job, too, whose machines these are not.
        ("plm", OsStr::new("rsh")),
        ("ras", OsStr::new("^slurm,tm,lsf,gridengine,alps")),
    ];
    if has_guests {
        more.push(("orte_leave_session_attached", OsStr::new("1")));
    }
    on(&all, ranks, &more, program)
}

/// The command that runs `program` with so many ranks on these machines, over these interfaces; without a number one on each. They
/// are reached by `ssh`; without it, inside a Slurm job, by srun.
///
/// # Errors
/// When there is no launcher.
pub fn on_machines(
    machines: &[Machine],
    ranks: Option<u32>,
    interfaces: &[String],
    ssh: Option<&str>,
    program: Vec<OsString>,
) -> Result<Vec<OsString>, MpiError> {
    let wire = interfaces.join(",");
    let more = [
        Some(("btl_tcp_if_include", wire.as_str())),
        ssh.map(|ssh| (AGENT, ssh)),
    ];
    let more: Vec<_> = more
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, OsStr::new(value)))
        .collect();
    on(machines, ranks, &more, program)
}

/// A machine that has a rank, by its name.
#[derive(Debug, Clone)]
pub struct Machine(String);

impl Machine {
    /// The machine that has this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }
}

fn on(
    machines: &[Machine],
    ranks: Option<u32>,
    more: &[(&str, &OsStr)],
    program: Vec<OsString>,
) -> Result<Vec<OsString>, MpiError> {
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).any(|directory| directory.join(LAUNCHER).is_file()) {
        return Err(MpiError::NoLauncher);
    }
    let chosen = |key: &str| env::var_os(format!("{ENVIRONMENT}{key}")).is_some();
    Ok(launch(machines, ranks, more, program, chosen))
}

/// `chosen`: whether the user has set a parameter.
fn launch(
    machines: &[Machine],
    ranks: Option<u32>,
    more: &[(&str, &OsStr)],
    program: Vec<OsString>,
    chosen: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let count = machines.len() as u32;
    let ranks = ranks.unwrap_or(count);
    let names: Vec<String> = machines
        .iter()
        .zip(evenly(ranks, count))
        .filter(|(_, slots)| *slots > 0)
        .map(|(machine, slots)| format!("{}:{slots}", machine.0))
        .collect();
    let mut command: Vec<OsString> = vec![
        LAUNCHER.into(),
        "--allow-run-as-root".into(),
        "-np".into(),
        ranks.to_string().into(),
        "--host".into(),
        names.join(",").into(),
        // Slurm may have given a machine fewer processors than it is to have ranks.
        "--oversubscribe".into(),
        "--bind-to".into(),
        "none".into(),
    ];
    let mut set = |key: &str, value: &OsStr| command.extend(["--mca".into(), key.into(), value.into()]);
    let times = TIMES.into_iter().filter(|(key, _)| !chosen(key));
    for (key, value) in SETTINGS.into_iter().chain(times) {
        set(key, OsStr::new(value));
    }
    for (key, value) in more {
        set(key, value);
    }
    command.extend(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stand_on_hosts_of_their_own() {
        let all = ["h1", "h2", "h3"].map(Machine::new);
        let command = launch(
            &all,
            None,
            &[(AGENT, OsStr::new("/bin/perturb agent"))],
            vec!["a.out".into(), "-x".into()],
            |_| false,
        );
        let text: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        assert!(text.windows(2).any(|pair| pair == ["--host", "h1:1,h2:1,h3:1"]));
        assert!(text.windows(2).any(|pair| pair == ["-np", "3"]));
        assert!(
            text.windows(3)
                .any(|words| words == ["--mca", "plm_rsh_agent", "/bin/perturb agent"])
        );
        assert!(text.ends_with(&["a.out".into(), "-x".into()]));
    }

    #[test]
    fn ranks_are_spread_evenly() {
        let all = ["h1", "h2", "h3"].map(Machine::new);
        for (ranks, hosts) in [(8, "h1:3,h2:3,h3:2"), (2, "h1:1,h2:1"), (6, "h1:2,h2:2,h3:2")] {
            let command = launch(&all, Some(ranks), &[], vec!["a.out".into()], |_| false);
            let has = |pair: [&str; 2]| command.windows(2).any(|words| words == pair);
            assert!(
                has(["--host", hosts]) && has(["-np", &ranks.to_string()]),
                "{command:?}"
            );
        }
    }

    #[test]
    fn times_are_exact_unless_the_user_has_chosen() {
        let sets = |chosen: &str| {
            let all = ["h1", "h2"].map(Machine::new);
            let command = launch(&all, None, &[], vec!["a.out".into()], |key| key == chosen);
            command
                .windows(3)
                .any(|words| words == ["--mca", "mpi_event_tick_rate", "20"])
        };
        assert!(sets("mpi_yield_when_idle"));
        assert!(!sets("mpi_event_tick_rate"));
    }
}
