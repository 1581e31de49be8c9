//! The engine of a Kubernetes node, by `crictl`. A pod is what has a network: its containers share it, and its labels are those
//! that Kubernetes selects by.

use std::{collections::BTreeMap, path::Path, process::Stdio};

use serde::{Deserialize, de::DeserializeOwned};
use tokio::process::Command;

use crate::{Container, EngineError, Network, State, engine::Lookup};

/// A pod that runs, as CRI calls it.
const READY: &str = "SANDBOX_READY";
/// The network of a pod that has its node's.
const NODE: &str = "NODE";

#[derive(Debug, Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
struct Pod {
    id: String,
    metadata: Metadata,
    state: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Debug, Deserialize)]
struct Inspected {
    status: Status,
    info: Info,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
struct Linux {
    #[serde(default)]
    namespaces: Namespaces,
}

#[derive(Debug, Default, Deserialize)]
struct Namespaces {
    #[serde(default)]
    options: Options,
}

#[derive(Debug, Default, Deserialize)]
struct Options {
    #[serde(default)]
    network: String,
}

#[derive(Debug, Deserialize)]
struct Info {
    pid: u32,
}

/// All pods; those that `lookup` asks for with their processes.
pub(crate) async fn pods(program: &Path, lookup: &Lookup) -> Result<Vec<Container>, EngineError> {
    let Pods { items } = ask(program, &["pods", "--output", "json"]).await?;
    let mut pods = Vec::with_capacity(items.len());
    for pod in items {
        let mut pod = known(pod);
        if lookup.asks_for(&pod) && pod.pid().is_some() {
            let inspected = ask(program, &["inspectp", "--output", "json", &pod.id]).await?;
            describe(&mut pod, &inspected);
        }
        pods.push(pod);
    }
    Ok(pods)
}

fn known(pod: Pod) -> Container {
    let Metadata { name, namespace } = pod.metadata;
    Container {
        name: if namespace.is_empty() {
            name
        } else {
            format!("{namespace}/{name}")
        },
        state: if pod.state == READY {
            State::Running(0)
        } else {
            State::Other(pod.state)
        },
        id: pod.id,
        labels: pod.labels,
        network: Network::Container,
        networks: Vec::new(),
    }
}

fn describe(pod: &mut Container, inspected: &Inspected) {
    pod.state = match inspected.info.pid {
        0 => State::Other("without a process".into()),
        pid => State::Running(pid),
    };
    if inspected.status.linux.namespaces.options.network == NODE {
        pod.network = Network::Host;
    }
}

async fn ask<T: DeserializeOwned>(program: &Path, words: &[&str]) -> Result<T, EngineError> {
    let command = || format!("crictl {}", words.join(" "));
    let failed = |said: String| EngineError::Program {
        command: command(),
        said,
    };
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().into()));
    }
    serde_json::from_slice(&output.stdout).map_err(|source| EngineError::Unreadable {
        path: command(),
        source,
    })
}
