//! The engines of this machine, and word of what changes in them.

use std::{
    collections::BTreeSet,
    env, fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    sync::mpsc::Sender,
    time::{sleep, timeout},
};

use crate::{Container, Network, Selector, cri, docker};

/// Where engines listen, unless DOCKER_HOST says another socket.
const SOCKETS: [&str; 2] = ["/run/docker.sock", "/run/podman/podman.sock"];
/// Names an engine's socket.
const DOCKER_HOST: &str = "DOCKER_HOST";
/// The program that asks a Kubernetes node's engine.
const CRICTL: &str = "crictl";

/// After an event: others that come with it are looked at together.
const TOGETHER: Duration = Duration::from_millis(50);
/// Looks without an event: none is relied upon.
const LOOK: Duration = Duration::from_secs(10);
/// Looks at an engine that says nothing by itself.
const POLL: Duration = Duration::from_secs(1);
/// Between two tries to reach an engine: from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

/// A container engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Docker or Podman, at a socket.
    Socket(PathBuf),
    /// A Kubernetes node's, asked by this program.
    Cri(PathBuf),
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "the container engine at {}", path.display()),
            Self::Cri(_) => f.write_str("the container engine that crictl asks"),
        }
    }
}

/// Why an engine cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is none.
    #[error("no container engine was found: {DOCKER_HOST} is not set, there are no {}, and no {CRICTL} in PATH; start Docker or \
             `podman system service`, or name its socket: {DOCKER_HOST}=unix://SOCKET", SOCKETS.join(", no "))]
    None,
    /// None of those that are there answers.
    #[error("no container engine answers: {0}")]
    NoneAnswers(String),
    /// Another machine's.
    #[error(
        "{DOCKER_HOST} is {0}: perturb works on this machine's containers; give {DOCKER_HOST}=unix://SOCKET, or unset it"
    )]
    Remote(String),
    /// Its socket.
    #[error("{0}")]
    Socket(#[source] io::Error),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// It refused.
    #[error("it answers {status}: {message}")]
    Answer {
        /// HTTP's code.
        status: u16,
        /// What it says.
        message: String,
    },
    /// Its answer is in another form.
    #[error("its answer to {path} cannot be read: {source}")]
    Unreadable {
        /// What was asked.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The program that asks it.
    #[error("`{command}` failed: {said}")]
    Program {
        /// How it was called.
        command: String,
        /// What it said.
        said: String,
    },
}

impl EngineError {
    /// Whether this user may not ask.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Socket(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Which containers' processes and networks are asked for, too.
#[derive(Clone, Debug)]
pub struct Lookup(pub Vec<Selector>);

impl Lookup {
    pub(crate) fn asks_for(&self, container: &Container) -> bool {
        self.0.iter().any(|selector| selector.matches(container))
    }
}

/// The engines that may be asked here.
pub fn engines() -> Result<Vec<Engine>, EngineError> {
    let host = env::var(DOCKER_HOST).unwrap_or_default();
    let search = env::var_os("PATH").unwrap_or_default();
    let crictl = env::split_paths(&search)
        .map(|place| place.join(CRICTL))
        .find(|path| path.is_file());
    from(&host, &SOCKETS.map(Path::new), crictl)
}

fn from(host: &str, sockets: &[&Path], crictl: Option<PathBuf>) -> Result<Vec<Engine>, EngineError> {
    if !host.is_empty() {
        let path = host.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        return match path {
            Some(path) => Ok(vec![Engine::Socket(path.into())]),
            None => Err(EngineError::Remote(host.into())),
        };
    }
    // Podman's Docker package makes one socket a link to the other.
    let there: BTreeSet<PathBuf> = sockets
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let mut found: Vec<Engine> = there.into_iter().map(Engine::Socket).collect();
    found.extend(crictl.map(Engine::Cri));
    if found.is_empty() {
        return Err(EngineError::None);
    }
    Ok(found)
}

impl Engine {
    /// All its containers.
    pub async fn containers(&self, lookup: &Lookup) -> Result<Vec<Container>, EngineError> {
        let mut all = match self {
            Self::Socket(path) => docker::containers(path, lookup).await,
            Self::Cri(program) => cri::pods(program, lookup).await,
        }?;
        for container in &mut all {
            // Engines do not say it of those that share the network of one that has this machine's.
            if container.pid().is_some_and(has_machines_network) {
                container.network = Network::Host;
            }
        }
        Ok(all)
    }
}

/// Whether a process is in the network namespace of the machine's first one. This one may be in a container's.
fn has_machines_network(pid: u32) -> bool {
    let number = |pid: u32| fs::metadata(format!("/proc/{pid}/ns/net")).map(|file| file.ino());
    number(pid).is_ok_and(|there| number(1).is_ok_and(|first| first == there))
}

/// What is heard of an engine.
#[derive(Debug)]
pub enum News {
    /// All its containers, now.
    Containers(Engine, Vec<Container>),
    /// It cannot be asked; it is tried again after this time.
    Lost(Engine, EngineError, Duration),
}

/// Tells which containers an engine has, at once and after each change, until nobody listens. An engine that cannot be reached is
/// tried again, ever more seldom.
pub async fn follow(engine: Engine, lookup: Lookup, tell: Sender<News>) {
    let (first, longest) = PAUSES;
    let mut pause = first;
    loop {
        let Err(error) = watch(&engine, &lookup, &tell, || pause = first).await else {
            return;
        };
        if tell.send(News::Lost(engine.clone(), error, pause)).await.is_err() {
            return;
        }
        sleep(pause).await;
        pause = longest.min(pause * 2);
    }
}

async fn watch(
    engine: &Engine,
    lookup: &Lookup,
    tell: &Sender<News>,
    mut answered: impl FnMut(),
) -> Result<(), EngineError> {
    let mut events = match engine {
        Engine::Socket(path) => Some(docker::Events::open(path).await?),
        Engine::Cri(_) => None,
    };
    loop {
        let containers = engine.containers(lookup).await?;
        answered();
        if tell
            .send(News::Containers(engine.clone(), containers))
            .await
            .is_err()
        {
            return Ok(());
        }
        let Some(events) = &mut events else {
            sleep(POLL).await;
            continue;
        };
        match timeout(LOOK, events.next()).await {
            Ok(Ok(Some(()))) => while let Ok(Ok(Some(()))) = timeout(TOGETHER, events.next()).await {},
            Ok(Ok(None)) => return Err(EngineError::Broken("it has ended its events".into())),
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_engines() {
        let place = tempfile::tempdir().expect("a directory");
        let here = place.path().join("docker.sock");
        fs::write(&here, "").expect("a file");
        let absent = place.path().join("podman.sock");
        let sockets = [here.as_path(), absent.as_path()];
        let crictl = PathBuf::from("/usr/bin/crictl");
        let found = from("", &sockets, Some(crictl.clone())).expect("engines");
        assert_eq!(found, [Engine::Socket(here.clone()), Engine::Cri(crictl)]);
        let link = place.path().join("podman-link.sock");
        std::os::unix::fs::symlink(&here, &link).expect("a link");
        let once = from("", &[&here, &link], None).expect("an engine");
        assert_eq!(once, [Engine::Socket(here.clone())]);
        let chosen = from("unix:///other", &sockets, None).expect("an engine");
        assert_eq!(chosen, [Engine::Socket("/other".into())]);
        for (host, sockets, part) in [
            ("tcp://10.0.0.1:2375", &sockets[..], "this machine's containers"),
            ("unix://other", &sockets, "unix://SOCKET"),
            ("", &sockets[1..], "/run/podman/podman.sock"),
        ] {
            let said = from(host, sockets, None).expect_err(host).to_string();
            assert!(said.contains(part), "{host}: {said}");
        }
    }
}
