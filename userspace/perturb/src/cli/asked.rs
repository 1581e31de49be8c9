//! Commands of a user who is not root, but in the group that `--socket-group` named: the emulations themselves are asked.

use perturb_emulator::{causes, clear::Scope, runtime, status::Report, told::Told};
use perturb_serve::{AskError, Client};

use super::DONE;

/// Those that answer this user; nothing if what was tried was not denied, or none answers.
pub(super) fn instead_of<T>(tried: &anyhow::Result<T>) -> Option<Vec<Client>> {
    let denied = tried.as_ref().err().is_some_and(causes::is_denied);
    Some(Client::all()).filter(|all| denied && !all.is_empty())
}

/// What each has done so far.
pub(super) fn reports(clients: &[Client], told: &mut Told) -> anyhow::Result<Vec<Report>> {
    runtime()?.block_on(async {
        let mut reports = Vec::new();
        for client in clients {
            match client.status().await {
                Ok(report) => reports.push(report),
                Err(error @ AskError::Ended(_)) => {
                    if told.is_news(&error.to_string()) {
                        eprintln!("{error}");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(reports)
    })
}

/// Ends those that are meant.
pub(super) fn clear(clients: &[Client], scope: &Scope) -> anyhow::Result<u8> {
    let chosen = chosen(clients, |report| match scope {
        Scope::All => true,
        Scope::Applied => report.hosts.is_empty(),
        Scope::Interface(name) => has(report, name),
        Scope::Containers(names) => report.containers.iter().any(|name| names.contains(name)),
    })?;
    if chosen.is_empty() {
        eprintln!("nothing to clear among what answers this user");
    }
    for (client, report) in chosen {
        runtime()?.block_on(client.clear())?;
        eprintln!("cleared {}", report.interfaces.join(", "));
    }
    Ok(DONE)
}

/// Keeps what waits to be confirmed.
pub(super) fn confirm(clients: &[Client], interface: Option<&str>) -> anyhow::Result<u8> {
    let chosen = chosen(clients, |report| {
        report.confirm_left_ms.is_some() && interface.is_none_or(|name| has(report, name))
    })?;
    if chosen.is_empty() {
        eprintln!("nothing waits to be confirmed among what answers this user");
    }
    for (client, report) in chosen {
        runtime()?.block_on(client.confirm())?;
        eprintln!("confirmed what is applied to {}", report.interfaces.join(", "));
    }
    Ok(DONE)
}

fn chosen(clients: &[Client], is_chosen: impl Fn(&Report) -> bool) -> anyhow::Result<Vec<(&Client, Report)>> {
    let mut reports = reports(clients, &mut Told::default())?;
    reports.retain(is_chosen);
    let with_client = |report: Report| {
        let client = clients.iter().find(|client| client.id() == report.id)?;
        Some((client, report))
    };
    Ok(reports.into_iter().filter_map(with_client).collect())
}

fn has(report: &Report, interface: &str) -> bool {
    report.hosts.is_empty() && report.interfaces.iter().any(|name| name == interface)
}
