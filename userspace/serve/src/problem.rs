//! Errors as HTTP has them: `application/problem+json` (RFC 9457).

use hyper::{StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::server::{Answer, text};

/// An error, for a program and for people.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The status in words.
    title: &'static str,
    /// The status.
    status: u16,
    /// What happened, and what to do.
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: detail.into(),
        }
    }

    /// Something that should not happen.
    pub(crate) fn internal(error: &anyhow::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
    }

    pub(crate) fn gone() -> Self {
        let detail = "nothing is emulated yet, or any more: ask again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn answer(&self) -> Answer {
        // Words and a number can be written.
        let body = serde_json::to_vec(self).unwrap_or_default();
        let mut answer = text("application/problem+json", body);
        *answer.status_mut() = StatusCode::from_u16(self.status).unwrap_or_default();
        answer
    }
}

/// An answer that says what may be done instead.
pub(crate) fn not_allowed(methods: &'static str) -> Answer {
    let detail = format!("that cannot be done with this path; it takes {methods}");
    let mut answer = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).answer();
    let methods = header::HeaderValue::from_static(methods);
    answer.headers_mut().insert(header::ALLOW, methods);
    answer
}
