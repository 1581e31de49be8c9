//! Errors as HTTP has them: `application/problem+json` (RFC 9457).

use hyper::{Response, StatusCode, header};
use serde::Serialize;

use crate::server::{Answer, text};

/// An error, for a program and for people.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    /// The status in words.
    title: &'static str,
    /// The status.
    status: u16,
    /// What happened, and what to do.
    detail: String,
}

/// An answer that says what is wrong.
pub(crate) fn problem(status: StatusCode, detail: impl Into<String>) -> Answer {
    let problem = Problem {
        title: status.canonical_reason().unwrap_or_default(),
        status: status.as_u16(),
        detail: detail.into(),
    };
    // Words and a number can be written.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut answer: Response<_> = text("application/problem+json", body);
    *answer.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = header::HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}
