//! Docker's API, which Podman has, too: HTTP over a Unix socket.
//!
//! Paths have no version: the engine then takes its own. Filters are left to this side, so that what another engine or another
//! version calls its states and events changes nothing.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use perturb_ask::{AskError, Method, Response, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::{Attachment, Container, EngineError, Network, State, engine::Lookup};

/// How long an engine may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Events that change nothing here: what is done inside of a container, and what watches it.
const IRRELEVANT: [&str; 8] = [
    "exec", "health", "top", "attach", "detach", "resize", "copy", "export",
];

/// A container in the list of all.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    names: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    state: Option<String>,
}

/// A container as it is described alone.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    state: Option<Process>,
    host_config: Option<HostConfig>,
    network_settings: Option<Settings>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Process {
    #[serde(default)]
    running: bool,
    status: Option<String>,
    pid: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    network_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Settings {
    networks: Option<BTreeMap<String, Endpoint>>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    #[serde(rename = "IPAddress")]
    address: Option<String>,
    #[serde(rename = "GlobalIPv6Address")]
    address6: Option<String>,
}

/// What happened, in Docker's words or in old ones; most events have both.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "Action")]
    action: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    message: String,
}

/// All containers; those that `lookup` asks for with their processes and networks.
pub(crate) async fn containers(socket: &Path, lookup: &Lookup) -> Result<Vec<Container>, EngineError> {
    let listed: Vec<Listed> = get(socket, "/containers/json?all=true").await?;
    let mut containers = Vec::with_capacity(listed.len());
    for one in listed {
        let mut container = known(one);
        if lookup.asks_for(&container) && container.pid().is_some() {
            match get::<Inspected>(socket, &format!("/containers/{}/json", container.id)).await {
                Ok(inspected) => describe(&mut container, inspected),
                // It has gone meanwhile.
                Err(EngineError::Answer { status: 404, .. }) => continue,
                Err(error) => return Err(error),
            }
        }
        containers.push(container);
    }
    Ok(containers)
}

fn known(listed: Listed) -> Container {
    let names = listed.names.unwrap_or_default();
    let mut names = names.iter().map(|name| name.trim_start_matches('/'));
    // The others are what linked containers call it: `web/db`.
    let name = names.find(|name| !name.contains('/')).unwrap_or(&listed.id);
    let state = listed.state.unwrap_or_default();
    Container {
        name: name.into(),
        // Its process comes when it is described.
        state: if is_alive(&state) {
            State::Running(0)
        } else {
            State::Other(state)
        },
        id: listed.id,
        labels: listed.labels.unwrap_or_default(),
        network: Network::Container,
        networks: Vec::new(),
    }
}

/// Whether a container of this state may have processes.
fn is_alive(state: &str) -> bool {
    matches!(state, "running" | "paused" | "restarting" | "stopping")
}

fn describe(container: &mut Container, inspected: Inspected) {
    container.state = match inspected.state {
        Some(Process {
            running: true,
            pid: Some(pid),
            ..
        }) if pid > 0 => State::Running(u32::try_from(pid).unwrap_or_default()),
        process => {
            let status = process.and_then(|process| process.status);
            State::Other(status.unwrap_or_else(|| "not running".into()))
        }
    };
    let mode = inspected.host_config.and_then(|config| config.network_mode);
    if mode.as_deref() == Some("host") {
        container.network = Network::Host;
    }
    let networks = inspected.network_settings.and_then(|settings| settings.networks);
    container.networks = networks
        .unwrap_or_default()
        .into_iter()
        .map(|(network, endpoint)| Attachment {
            network,
            addresses: [endpoint.address, endpoint.address6]
                .into_iter()
                .flatten()
                .filter_map(|address| address.parse::<IpAddr>().ok())
                .collect(),
        })
        .collect();
}

/// The engine's events, from a second ago on: what happened before the connection stood is among them.
pub(crate) struct Events {
    body: Incoming,
    unread: Vec<u8>,
}

impl Events {
    pub(crate) async fn open(socket: &Path) -> Result<Self, EngineError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let since = now.map_or(0, |now| now.as_secs().saturating_sub(1));
        let response = ask(socket, &format!("/events?since={since}")).await?;
        Ok(Self {
            body: response.into_body(),
            unread: Vec::new(),
        })
    }

    /// Waits until something has happened that may concern containers; `None` at the stream's end.
    pub(crate) async fn next(&mut self) -> Result<Option<()>, EngineError> {
        loop {
            while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if is_relevant(&line) {
                    return Ok(Some(()));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    let frame = frame.map_err(|error| EngineError::Broken(error.to_string()))?;
                    self.unread.extend(frame.data_ref().map_or(&[][..], |data| data));
                }
            }
        }
    }
}

/// Whether an event may concern which containers run, or their networks. One that cannot be read may.
fn is_relevant(line: &[u8]) -> bool {
    let action = match serde_json::from_slice::<Event>(line) {
        Ok(event) => event.action.or(event.status).unwrap_or_default(),
        Err(_) => return true,
    };
    !IRRELEVANT.iter().any(|word| action.starts_with(word))
}

async fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, EngineError> {
    let body = in_time(async { Ok(perturb_ask::read(ask(socket, path).await?).await?) }).await?;
    serde_json::from_slice(&body).map_err(|error| EngineError::Unreadable {
        path: path.into(),
        source: error,
    })
}

async fn in_time<T>(answer: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
    timeout(PATIENCE, answer)
        .await
        .unwrap_or(Err(EngineError::Silent(PATIENCE)))
}

async fn ask(socket: &Path, path: &str) -> Result<Response<Incoming>, EngineError> {
    let asked = async { Ok(perturb_ask::ask(socket, Method::GET, path, None).await?) };
    let response = in_time(asked).await?;
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let status = response.status().as_u16();
    let body = perturb_ask::read(response).await?;
    let message = serde_json::from_slice(&body).map_or_else(
        |_| String::from_utf8_lossy(&body).into_owned(),
        |Refusal { message }| message,
    );
    Err(EngineError::Answer { status, message })
}

impl From<AskError> for EngineError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Socket(error) => Self::Socket(error),
            AskError::Broken(why) => Self::Broken(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Docker's reference (`ContainerInspect`) has it, shortened.
    const BRIDGED: &str = r#"{ "Id": "ba0", "State": { "Status": "running", "Running": true, "Paused": false, "Pid": 1234 },
        "HostConfig": { "NetworkMode": "bridge" },
        "NetworkSettings": { "Networks": { "bridge": { "IPAddress": "172.17.0.4", "GlobalIPv6Address": "",
            "MacAddress": "02:42:ac:12:00:02" }, "back": { "IPAddress": "172.18.0.2", "GlobalIPv6Address": "2001:db8::5" } } } }"#;

    fn listed(state: &str) -> Container {
        let text = format!(r#"{{ "Id": "ba0", "Names": ["/db"], "Labels": null, "State": "{state}" }}"#);
        known(serde_json::from_str(&text).expect("a container"))
    }

    #[test]
    fn a_container_is_described() {
        let mut container = listed("running");
        describe(
            &mut container,
            serde_json::from_str(BRIDGED).expect("its description"),
        );
        assert_eq!((container.name.as_str(), container.pid()), ("db", Some(1234)));
        let addresses: Vec<usize> = container
            .networks
            .iter()
            .map(|network| network.addresses.len())
            .collect();
        assert_eq!(addresses, [2, 1]);
        assert_eq!(container.network, Network::Container);
    }

    /// As Docker 20.10 lists one that another calls by a link of its own.
    #[test]
    fn a_link_is_no_name() {
        let text = r#"{ "Id": "ba0", "Names": ["/aaa/al", "/zzz"], "Labels": {}, "State": "running" }"#;
        assert_eq!(
            known(serde_json::from_str(text).expect("a container")).name,
            "zzz"
        );
    }

    /// Podman knows states that Docker does not.
    #[test]
    fn states_of_any_engine() {
        for state in ["stopped", "initialized", "configured", "", "exited", "created"] {
            assert_eq!(listed(state).state, State::Other(state.into()));
        }
        let mut container = listed("running");
        let host = BRIDGED.replace(r#""bridge" }"#, r#""host" }"#);
        describe(
            &mut container,
            serde_json::from_str(&host).expect("its description"),
        );
        assert_eq!(container.network, Network::Host);
        let ended = BRIDGED.replace(r#""Running": true"#, r#""Running": false"#);
        describe(
            &mut container,
            serde_json::from_str(&ended).expect("its description"),
        );
        assert_eq!(container.pid(), None);
    }

    #[test]
    fn events_that_matter() {
        for (line, matters) in [
            (r#"{"Type":"container","Action":"start","Actor":{}}"#, true),
            (r#"{"Type":"network","Action":"connect"}"#, true),
            (r#"{"Type":"pod","Action":"stop"}"#, true),
            (r#"{"status":"died"}"#, true),
            (r#"{"Type":"container","Action":"exec_create: sh"}"#, false),
            (r#"{"Type":"container","Action":"health_status: healthy"}"#, false),
            // As Docker 20.10 and Podman 4.3 have it.
            (
                r#"{"status":"exec_start: sh","Type":"container","Action":"exec_start: sh"}"#,
                false,
            ),
            (r#"{"status":"pause","Type":"container","Action":"pause"}"#, true),
            ("what is that", true),
        ] {
            assert_eq!(is_relevant(line.as_bytes()), matters, "{line}");
        }
    }
}
