//! Which containers are meant.

use std::{fmt, str::FromStr};

use perturb_quantity::closest;

use crate::{Container, Network, State};

/// The labels by which Docker Compose and podman-compose name a container's project.
const PROJECT: [&str; 2] = ["com.docker.compose.project", "io.podman.compose.project"];

/// The beginning of a container's number that means it.
const SHORTEST_ID: usize = 12;

/// What the user says of the containers that are meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// One of this name, or with a number that begins so.
    Name(String),
    /// All with a label, of this value if one is given.
    Label(String, Option<String>),
    /// All of a Compose project.
    Compose(String),
}

/// What names no container.
#[derive(Debug, thiserror::Error)]
pub enum SelectorError {
    /// It cannot be read.
    #[error("`{0}` is neither a container's name nor a label: write NAME, label=KEY or label=KEY=VALUE")]
    Form(String),
    /// There is none of the name.
    #[error("there is no container `{name}`{}", known(.meant.as_deref(), .others))]
    Unknown {
        /// The name.
        name: String,
        /// What may be meant.
        meant: Option<String>,
        /// All there are.
        others: Vec<String>,
    },
    /// It does not run.
    #[error(
        "the container {name} is {state}; start it first, or choose it by a label (--container label=KEY=VALUE), and it is \
             emulated whenever it starts"
    )]
    Stopped {
        /// Which.
        name: String,
        /// What it is instead.
        state: String,
    },
    /// It has this machine's network.
    #[error(
        "the container {0} uses this machine's own network, so its traffic is that of this machine's interfaces: \
             `perturb apply --iface`, with a class that matches the container's ports"
    )]
    Host(String),
    /// Several have it.
    #[error(
        "{count} containers are called `{name}`, each of another engine; DOCKER_HOST=unix://SOCKET chooses an engine"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// How many.
        count: usize,
    },
}

fn known(meant: Option<&str>, others: &[String]) -> String {
    if others.is_empty() {
        return ": there are none at all".into();
    }
    let meant = meant.map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
    format!("{meant}; there are {}", others.join(", "))
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let wrong = || SelectorError::Form(text.into());
        if let Some(label) = text.strip_prefix("label=") {
            let (key, value) = match label.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (label, None),
            };
            return if key.is_empty() {
                Err(wrong())
            } else {
                Ok(Self::Label(key.into(), value))
            };
        }
        let is_name = |name: &str| {
            name.chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "_.-/".contains(letter))
        };
        if text.is_empty() || !is_name(text) {
            return Err(wrong());
        }
        Ok(Self::Name(text.into()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Label(key, None) => write!(f, "label={key}"),
            Self::Label(key, Some(value)) => write!(f, "label={key}={value}"),
            Self::Compose(project) => write!(f, "compose={project}"),
        }
    }
}

impl Selector {
    /// Whether a container is meant.
    #[must_use]
    pub fn matches(&self, container: &Container) -> bool {
        match self {
            Self::Name(word) => is_called(word, &container.name, &container.id),
            Self::Label(key, wanted) => container
                .labels
                .get(key)
                .is_some_and(|value| wanted.as_ref().is_none_or(|wanted| wanted == value)),
            Self::Compose(project) => PROJECT
                .iter()
                .any(|key| container.labels.get(*key) == Some(project)),
        }
    }

    /// Whether it means any container of a kind, now or later.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Name(_))
    }
}

/// Whether a word is a container's name, or the beginning of its number.
#[must_use]
pub fn is_called(word: &str, name: &str, id: &str) -> bool {
    name == word || (word.len() >= SHORTEST_ID && id.starts_with(word))
}

/// The containers that are to be emulated now. What is named must be there and run; of a label or a project there may be none yet.
pub fn choose<'a>(selectors: &[Selector], all: &'a [Container]) -> Result<Vec<&'a Container>, SelectorError> {
    let mut chosen: Vec<&Container> = Vec::new();
    for selector in selectors {
        let matching: Vec<&Container> = all
            .iter()
            .filter(|container| selector.matches(container))
            .collect();
        if let Selector::Name(name) = selector {
            match matching.as_slice() {
                [] => {
                    let names = || all.iter().map(|container| container.name.as_str());
                    return Err(SelectorError::Unknown {
                        name: name.clone(),
                        meant: closest(name, names()).map(Into::into),
                        others: names().map(Into::into).collect(),
                    });
                }
                [one] => must_run(one)?,
                several => {
                    return Err(SelectorError::Ambiguous {
                        name: name.clone(),
                        count: several.len(),
                    });
                }
            }
        }
        for container in matching {
            let is_new = chosen.iter().all(|other| other.id != container.id);
            if is_new && container.pid().is_some() && container.network == Network::Container {
                chosen.push(container);
            }
        }
    }
    Ok(chosen)
}

fn must_run(container: &Container) -> Result<(), SelectorError> {
    if let State::Other(state) = &container.state {
        return Err(SelectorError::Stopped {
            name: container.name.clone(),
            state: state.clone(),
        });
    }
    if container.network == Network::Host {
        return Err(SelectorError::Host(container.name.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, labels: &[(&str, &str)], state: State, network: Network) -> Container {
        Container {
            id: format!("{name}00112233445566778899"),
            name: name.into(),
            labels: labels
                .iter()
                .map(|&(key, value)| (key.into(), value.into()))
                .collect(),
            state,
            network,
            networks: Vec::new(),
        }
    }

    fn all() -> Vec<Container> {
        let exited = State::Other("exited".into());
        vec![
            container("db", &[("app", "db")], State::Running(7), Network::Container),
            container(
                "web-1",
                &[("app", "web"), (PROJECT[0], "shop")],
                State::Running(8),
                Network::Container,
            ),
            container("job", &[("app", "db")], exited, Network::Container),
            container("proxy", &[("app", "db")], State::Running(9), Network::Host),
        ]
    }

    fn chosen(words: &[&str]) -> Result<Vec<String>, String> {
        let read = |word: &&str| match word.strip_prefix("compose=") {
            Some(project) => Ok(Selector::Compose(project.into())),
            None => word.parse().map_err(|error: SelectorError| error.to_string()),
        };
        let selectors = words.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let all = all();
        let found = choose(&selectors, &all).map_err(|error| error.to_string())?;
        Ok(found
            .into_iter()
            .map(|container| container.name.clone())
            .collect())
    }

    #[test]
    fn what_is_meant() {
        let is = |words: &[&str], names: &[&str]| {
            assert_eq!(chosen(words).as_deref(), Ok(&*own(names)), "{words:?}");
        };
        is(&["db"], &["db"]);
        is(&["db0011223344"], &["db"]);
        is(&["label=app=db"], &["db"]);
        is(&["label=app"], &["db", "web-1"]);
        is(&["compose=shop", "label=app"], &["web-1", "db"]);
        is(&["label=app=none"], &[]);
    }

    fn own(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn mistakes_are_explained() {
        for (word, parts) in [
            (
                "dbb",
                &[
                    "no container `dbb`",
                    "did you mean `db`?",
                    "db, web-1, job, proxy",
                ][..],
            ),
            ("db0011", &["no container `db0011`"]),
            ("job", &["job is exited", "start it first"]),
            ("proxy", &["this machine's own network", "--iface"]),
            ("a=b", &["`a=b` is neither", "label=KEY=VALUE"]),
            ("label=", &["`label=` is neither"]),
            ("", &["`` is neither"]),
        ] {
            let said = chosen(&[word]).expect_err(word);
            assert!(parts.iter().all(|part| said.contains(part)), "{word}: {said}");
        }
    }
}
