//! The engine of a Kubernetes node, by `crictl`. A pod is what has a network: its containers share it, and its labels are those
//! that Kubernetes selects by.

use std::{collections::BTreeMap, net::IpAddr, path::Path, process::Stdio};

use serde::{Deserialize, de::DeserializeOwned};
use tokio::process::Command;

use crate::{Attachment, Container, EngineError, Network, State, engine::Lookup};

/// A pod that runs, as CRI calls it.
const READY: &str = "SANDBOX_READY";
/// The network of a pod that has its node's.
const NODE: &str = "NODE";
/// The network of any other: CRI has no names for them.
const POD: &str = "pod";
/// What crictl says of a pod that has gone, as gRPC calls it.
const GONE: &str = "NotFound";

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
    network: Option<Addresses>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Addresses {
    #[serde(default)]
    ip: String,
    #[serde(default)]
    additional_ips: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    ip: String,
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
            match ask(program, &["inspectp", "--output", "json", &pod.id]).await {
                Ok(inspected) => describe(&mut pod, inspected),
                // It has gone meanwhile.
                Err(EngineError::Program { said, .. }) if said.contains(GONE) => continue,
                Err(error) => return Err(error),
            }
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

fn describe(pod: &mut Container, inspected: Inspected) {
    pod.state = match inspected.info.pid {
        0 => State::Other("without a process".into()),
        pid => State::Running(pid),
    };
    if inspected.status.linux.namespaces.options.network == NODE {
        pod.network = Network::Host;
    }
    pod.networks = inspected
        .status
        .network
        .map(|Addresses { ip, additional_ips }| {
            let more = additional_ips.into_iter().map(|address| address.ip);
            let all = [ip].into_iter().chain(more);
            Attachment {
                network: POD.into(),
                addresses: all.filter_map(|address| address.parse::<IpAddr>().ok()).collect(),
            }
        })
        .into_iter()
        .collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As crictl 1.26 and 1.36 print them of containerd 1.6, shortened.
    const PODS: &str = r#"{ "items": [
        { "id": "b598681752f0", "metadata": { "name": "db", "uid": "u-db", "namespace": "default", "attempt": 0 },
          "state": "SANDBOX_READY", "createdAt": "1795902946248368840", "labels": { "app": "db" }, "runtimeHandler": "" },
        { "id": "8cc53d451665", "metadata": { "name": "old", "uid": "u-old", "namespace": "", "attempt": 0 },
          "state": "SANDBOX_NOTREADY", "createdAt": "1795902946572333542", "labels": {}, "runtimeHandler": "" } ] }"#;
    const INSPECTED: &str = r#"{ "status": { "id": "b598681752f0", "state": "SANDBOX_READY",
            "network": { "additionalIps": [{ "ip": "fd00::2" }], "ip": "10.88.0.2" },
            "linux": { "namespaces": { "options": { "ipc": "POD", "network": "POD", "pid": "POD", "usernsOptions": null } } } },
        "info": { "pid": 104, "processStatus": "running", "netNamespaceClosed": false } }"#;

    #[test]
    fn a_pod_is_described() {
        let Pods { items } = serde_json::from_str(PODS).expect("pods");
        let mut pods: Vec<Container> = items.into_iter().map(known).collect();
        let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["default/db", "old"]);
        assert_eq!(pods[1].state, State::Other("SANDBOX_NOTREADY".into()));
        let db = &mut pods[0];
        describe(db, serde_json::from_str(INSPECTED).expect("its description"));
        assert_eq!((db.pid(), &db.network), (Some(104), &Network::Container));
        assert_eq!(db.networks[0].addresses.len(), 2);
        // A pod with its node's network has no address.
        let node = INSPECTED
            .replace(r#""network": "POD""#, r#""network": "NODE""#)
            .replace("10.88.0.2", "")
            .replace(r#"{ "ip": "fd00::2" }"#, "");
        describe(db, serde_json::from_str(&node).expect("its description"));
        assert_eq!(db.network, Network::Host);
        assert!(db.networks[0].addresses.is_empty());
    }
}
