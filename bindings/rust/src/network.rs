//! A network, from its beginning to what is to be said of it in the end.

use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf, thread, time::Duration};

use perturb_ask::Method;
use serde_json::{Map, Value, json};

use crate::{
    builder::{Builder, Profile},
    error::{Error, io, silent},
    host::Host,
    running::Running,
};

/// How long an answer may take: a change waits for other commands up to 20 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// Private hosts joined by a profile. All their processes end with the network. One that is dropped without [`Network::end`], as
/// where a test fails, says on standard error what speaks against it.
#[derive(Debug)]
#[must_use = "`end` says what speaks against what was seen"]
pub struct Network {
    pub(crate) id: String,
    pub(crate) socket: String,
    pub(crate) hosts: Vec<Host>,
    pub(crate) expect_traffic: bool,
    pub(crate) allow_faults: bool,
    pub(crate) running: Option<Running>,
    /// What `perturb run` says.
    pub(crate) said: File,
}

impl Network {
    /// A network by the name of a profile that perturb brings along, or by a file.
    pub fn of(profile: impl Into<PathBuf>) -> Builder {
        Builder::new(Profile::Named(profile.into()))
    }

    /// A network by a profile's text: `version: 1`, `latency: 20ms`.
    pub fn of_text(profile: impl Into<String>) -> Builder {
        Builder::new(Profile::Text(profile.into()))
    }

    /// Its name in `perturb status`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `h1`, `h2`, ….
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A host by its name.
    ///
    /// # Errors
    /// There is none, or the network has ended by itself.
    pub fn host(&self, name: &str) -> Result<&Host, Error> {
        self.check()?;
        let found = self.hosts.iter().find(|host| host.name() == name);
        found.ok_or_else(|| Error::NoHost {
            name: name.into(),
            there: self.hosts.iter().map(|host| host.name().into()).collect(),
        })
    }

    /// Changes keys of all servers while packets cross them: `net.set([("latency", "80ms")])`. For profiles with one server, or
    /// with one for each direction because they name none; of others [`Network::set_at`] says which.
    ///
    /// # Errors
    /// perturb refuses, or does not answer.
    pub fn set<'a>(&self, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), Error> {
        let there = self.servers()?;
        if there.len() > 1 && there != ["out", "in"] {
            return Err(Error::Refused(format!(
                "the servers are {}: say which, such as net.set_at({:?}, …)",
                there.join(", "),
                there[0]
            )));
        }
        self.change(&there, values)
    }

    /// Changes keys of one server while packets cross it.
    ///
    /// # Errors
    /// There is none of this name, perturb refuses, or does not answer.
    pub fn set_at<'a>(
        &self,
        server: &str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Error> {
        let there = self.servers()?;
        // A server that no class names would change nothing.
        if !there.iter().any(|name| name == server) {
            let there = there.join(", ");
            return Err(Error::Refused(format!(
                "there is no server {server}, but {there}"
            )));
        }
        self.change(&[server.into()], values)
    }

    fn change<'a>(
        &self,
        servers: &[String],
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Error> {
        let values: Map<String, Value> = values
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        let servers: Map<String, Value> = servers
            .iter()
            .map(|server| (server.clone(), values.clone().into()))
            .collect();
        self.patch(&json!({ "servers": servers }))
    }

    fn servers(&self) -> Result<Vec<String>, Error> {
        let status = self.status()?;
        let names = status["servers"].as_array().into_iter().flatten();
        Ok(names
            .filter_map(|server| Some(server["name"].as_str()?.to_owned()))
            .collect())
    }

    /// Changes any part of the profile in force, by a JSON merge patch (RFC 7396).
    ///
    /// # Errors
    /// perturb refuses, or does not answer.
    pub fn patch(&self, patch: &Value) -> Result<(), Error> {
        let body = Some(("application/merge-patch+json", patch.to_string()));
        self.ask(Method::PATCH, "/v1/profile", body).map(drop)
    }

    /// The profile in force, as YAML.
    ///
    /// # Errors
    /// perturb does not answer.
    pub fn profile(&self) -> Result<String, Error> {
        self.ask(Method::GET, "/v1/profile", None)
    }

    /// Lets traffic pass untouched until [`Network::resume`].
    ///
    /// # Errors
    /// perturb refuses, or does not answer.
    pub fn pause(&self) -> Result<(), Error> {
        self.ask(Method::POST, "/v1/pause", None).map(drop)
    }

    /// Emulates again.
    ///
    /// # Errors
    /// perturb refuses, or does not answer.
    pub fn resume(&self) -> Result<(), Error> {
        self.ask(Method::POST, "/v1/resume", None).map(drop)
    }

    /// What was counted so far, as `perturb status --json` has it.
    ///
    /// # Errors
    /// perturb does not answer.
    pub fn status(&self) -> Result<Value, Error> {
        let text = self.ask(Method::GET, "/v1/status", None)?;
        serde_json::from_str(&text).map_err(|error| Error::Silent {
            socket: self.socket.clone(),
            why: format!("its report is not understood: {error}"),
        })
    }

    /// Ends the network; what was counted, as `perturb status --json` has it.
    ///
    /// # Errors
    /// No packet crossed it, packets met what no profile asks for, or it had ended by itself.
    pub fn end(mut self) -> Result<Value, Error> {
        let report = self.close()?;
        let against = self.against(&report);
        if against.is_empty() {
            Ok(report)
        } else {
            Err(Error::Against(against))
        }
    }

    /// Ends `perturb run`; its report.
    fn close(&mut self) -> Result<Value, Error> {
        let Some(running) = self.running.take() else {
            return Ok(Value::Null);
        };
        let (status, report) = running.end()?;
        match serde_json::from_slice(&report) {
            Ok(report) if status.success() => Ok(report),
            _ => Err(Error::Ended {
                status,
                said: self.words(),
            }),
        }
    }

    /// What speaks against what was seen, in words.
    fn against(&self, report: &Value) -> Vec<String> {
        let mut against = Vec::new();
        let faults: Vec<String> = report["faults"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|fault| {
                format!(
                    "{} packets: {}",
                    fault["packets"],
                    fault["place"].as_str().unwrap_or("?")
                )
            })
            .collect();
        if !faults.is_empty() && !self.allow_faults {
            against.push(format!(
                "the network was not what the profile says ({}), so do not trust the result:\n{}",
                faults.join(", "),
                self.words()
            ));
        }
        if self.expect_traffic && report["balance"]["captured"] == 0 {
            // Each host counts them.
            let why: Vec<&str> = [
                ("paused", "it was paused meanwhile"),
                ("unmatched", "packets matched no class of the profile"),
            ]
            .into_iter()
            .filter(|(event, _)| report["events"][event].as_u64().is_some_and(|count| count > 0))
            .map(|(_, why)| why)
            .collect();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(" ({})", why.join(", "))
            };
            against.push(format!(
                "no packet crossed the emulated network, so it had no part in the result: let a host talk to another one, by its name \
                 or address{why}; expect_traffic(false) allows it"
            ));
        }
        against
    }

    /// Fails if the hosts are gone.
    fn check(&self) -> Result<(), Error> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        match running
            .child()
            .try_wait()
            .map_err(io("waiting for perturb run"))?
        {
            None => Ok(()),
            Some(status) => Err(Error::Ended {
                status,
                said: self.words(),
            }),
        }
    }

    fn ask(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Result<String, Error> {
        self.check()?;
        let socket = self.socket.as_ref();
        let silent = silent(&self.socket);
        let answer = async {
            let answer = perturb_ask::ask(socket, method, path, body)
                .await
                .map_err(&silent)?;
            let status = answer.status();
            let body = perturb_ask::read(answer).await.map_err(&silent)?;
            let text = String::from_utf8_lossy(&body).into_owned();
            if status.is_success() {
                return Ok(text);
            }
            // As problem+json has it.
            let detail = serde_json::from_str::<Value>(&text)
                .ok()
                .and_then(|problem| Some(problem["detail"].as_str()?.to_owned()));
            Err(Error::Refused(
                detail.unwrap_or_else(|| format!("{status}: {text}")),
            ))
        };
        let ask = || -> Result<String, Error> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(io("starting a runtime"))?;
            let in_time = async { tokio::time::timeout(PATIENCE, answer).await };
            runtime.block_on(in_time).unwrap_or_else(|_| {
                Err(Error::Silent {
                    socket: self.socket.clone(),
                    why: format!("no answer within {} s", PATIENCE.as_secs()),
                })
            })
        };
        // A thread of its own: whoever asks may have a runtime, and there is one for a thread.
        thread::scope(|scope| scope.spawn(ask).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// What `perturb run` has said, without its name before each message.
    pub(crate) fn words(&self) -> String {
        let mut said = vec![0; 1 << 20];
        // The offset is the writer's, too.
        let length = self.said.read_at(&mut said, 0).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[..length]);
        let lines: Vec<&str> = said
            .trim()
            .lines()
            .map(|line| line.strip_prefix("perturb: ").unwrap_or(line))
            .collect();
        lines.join("\n")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.running.is_none() {
            return;
        }
        // The test's own failure comes first; what speaks against the network may explain it.
        match self.close() {
            Ok(report) => self
                .against(&report)
                .iter()
                .for_each(|line| eprintln!("perturb: {line}")),
            Err(error) => eprintln!("perturb: {error}"),
        }
    }
}
