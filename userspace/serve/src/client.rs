//! The other end of the API: what a command asks of an emulation over its socket.

use std::{fs, io, os::unix::fs::FileTypeExt as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use hyper::body::Bytes;
use perturb_ask::{Method, StatusCode};
use perturb_emulator::{
    registry::{RECORDS, believed},
    status::Report,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};

use crate::{
    api::{MERGE_PATCH, YAML},
    socket::{SOCKET, names, of_group},
};

/// How long an answer may take. A change waits for other commands up to 20 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon it is looked again whether an emulation has ended.
const AGAIN: Duration = Duration::from_millis(20);
const PATIENCE_OF_CHANGES: Duration = Duration::from_secs(30);

/// Why nothing came of a question.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The emulation has ended.
    #[error("the emulation {0} has ended")]
    Ended(String),
    /// It said no, and why.
    #[error("{detail}")]
    Refused {
        /// The status.
        status: u16,
        /// What happened, and what to do.
        detail: String,
    },
    /// There was no answer, or none that this perturb understands.
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

/// An emulation that answers on a socket which this user may use.
#[derive(Clone, Debug)]
pub struct Client {
    id: String,
    socket: PathBuf,
}

impl Client {
    /// All of them, by name.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        let mut note = |id: String, socket: PathBuf| {
            let is_socket = fs::metadata(&socket).is_ok_and(|found| found.file_type().is_socket());
            // What a killed emulation left is there, too, and nobody listens.
            if is_socket && std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                all.push(Self { id, socket });
            }
        };
        for (id, path) in believed().map(names).unwrap_or_default() {
            note(id, path.join(SOCKET));
        }
        let groups = PathBuf::from(RECORDS).parent().map(names).unwrap_or_default();
        for (_, directory) in groups.into_iter().filter(|(name, _)| of_group(name)) {
            for (id, path) in names(directory) {
                note(id, path);
            }
        }
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }

    /// The emulation's name in the registry.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// As [`AskError`] has them.
    pub async fn status(&self) -> Result<Report, AskError> {
        let body = self.ask(Method::GET, "/v1/status", None).await?;
        serde_json::from_slice(&body)
            .context("its report is not understood: it may be of another version of perturb")
            .map_err(AskError::Failed)
    }

    /// The profile in force, normalized.
    ///
    /// # Errors
    /// As [`AskError`] has them.
    pub async fn profile(&self) -> Result<String, AskError> {
        text(self.ask(Method::GET, "/v1/profile", None).await?)
    }

    /// Changes a part of it, by a JSON merge patch; the profile that is in force now.
    ///
    /// # Errors
    /// As [`AskError`] has them.
    pub async fn patch(&self, patch: &Value) -> Result<String, AskError> {
        let body = Some((MERGE_PATCH, patch.to_string()));
        text(self.ask(Method::PATCH, "/v1/profile", body).await?)
    }

    /// Puts another profile in force; the same, normalized.
    ///
    /// # Errors
    /// As [`AskError`] has them.
    pub async fn put(&self, profile: String) -> Result<String, AskError> {
        text(
            self.ask(Method::PUT, "/v1/profile", Some((YAML, profile)))
                .await?,
        )
    }

    /// Lets traffic pass untouched from now on, or emulates again.
    ///
    /// # Errors
    /// As [`AskError`] has them.
    pub async fn pause(&self, paused: bool) -> Result<(), AskError> {
        let path = if paused { "/v1/pause" } else { "/v1/resume" };
        self.ask(Method::POST, path, None).await.map(drop)
    }

    /// Keeps what waits to be confirmed.
    ///
    /// # Errors
    /// As [`AskError`] has them; also if it is too late.
    pub async fn confirm(&self) -> Result<(), AskError> {
        self.ask(Method::POST, "/v1/confirm", None).await.map(drop)
    }

    /// Ends the emulation, and waits until nobody answers any more.
    ///
    /// # Errors
    /// As [`AskError`] has them.
    pub async fn clear(&self) -> Result<(), AskError> {
        match self.ask(Method::POST, "/v1/clear", None).await {
            Ok(_) | Err(AskError::Ended(_)) => {}
            Err(error) => return Err(error),
        }
        let ended = async {
            // The socket is removed with the emulation.
            while UnixStream::connect(&self.socket).await.is_ok() {
                sleep(AGAIN).await;
            }
        };
        timeout(PATIENCE, ended).await.map_err(|_| {
            let patience = PATIENCE.as_secs();
            AskError::Failed(anyhow::anyhow!("{} has not ended within {patience} s", self.id))
        })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> Result<Bytes, AskError> {
        let patience = if method == Method::GET {
            PATIENCE
        } else {
            PATIENCE_OF_CHANGES
        };
        let answered = timeout(patience, self.answer(method, path, body)).await;
        let unanswered = || {
            let patience = patience.as_secs();
            AskError::Failed(anyhow::anyhow!("{} has not answered for {patience} s", self.id))
        };
        let (status, body) = answered.unwrap_or_else(|_| Err(unanswered()))?;
        if status.is_success() {
            return Ok(body);
        }
        let detail =
            serde_json::from_slice(&body).map_or_else(|_| status.to_string(), |Detail { detail }| detail);
        let status = status.as_u16();
        Err(AskError::Refused { status, detail })
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let answered = async {
            let answer = perturb_ask::ask(&self.socket, method, path, body).await?;
            let status = answer.status();
            Ok((status, perturb_ask::read(answer).await?))
        };
        answered
            .await
            .map_err(|error: perturb_ask::AskError| match error {
                perturb_ask::AskError::Socket(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) =>
                {
                    AskError::Ended(self.id.clone())
                }
                other => AskError::Failed(anyhow::Error::new(other).context(format!(
                    "asking {} at {}",
                    self.id,
                    self.socket.display()
                ))),
            })
    }
}

/// An error as `problem+json` has it.
#[derive(Deserialize)]
struct Detail {
    detail: String,
}

fn text(body: Bytes) -> Result<String, AskError> {
    String::from_utf8(body.into())
        .context("the answer is not in UTF-8")
        .map_err(AskError::Failed)
}
