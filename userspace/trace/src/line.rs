//! What-if events as JSON lines. Their times are fixed-point, with three decimals, which serde_json's numbers are not.

use std::fmt;
use std::io::Write as _;

use crate::ranks::Channel;

/// A process of the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Name {
    /// An MPI process: its rank.
    Rank(u32),
    /// Another program, and how manieth of its name.
    Text(String),
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(rank) => write!(out, "{rank}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

/// What tells a message from others on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageName {
    /// Over a TCP connection: a number.
    Stream(u64),
    /// Of MPI: the k-th send of a channel meets the k-th receive.
    Channel(Channel),
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    Compute,
    KeepAlive,
    Send {
        message: MessageName,
        bytes: u64,
        to: Name,
    },
    StartReceive {
        message: MessageName,
    },
    EndReceive {
        message: MessageName,
    },
    Exit,
}

/// Lines under construction.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Appends an event; `cpu_ns` is the CPU time since the process's last one, `time_ns` when it happened, if that is
    /// wanted.
    pub(super) fn write(&mut self, process: &Name, cpu_ns: u64, time_ns: Option<u64>, event: &Happening) {
        let kind = match event {
            Happening::Compute => "compute",
            Happening::KeepAlive => "keep_alive",
            Happening::Send { .. } => "send",
            Happening::StartReceive { .. } => "start_recv",
            Happening::EndReceive { .. } => "end_recv",
            Happening::Exit => "exit",
        };
        self.text("{\"process\": ");
        self.name(process);
        // Writing to memory cannot fail.
        let _: std::io::Result<()> = write!(
            self.0,
            ", \"type\": \"{kind}\", \"cpu_us\": {}.{:03}",
            cpu_ns / 1000,
            cpu_ns % 1000
        );
        if let Happening::Send { message, .. }
        | Happening::StartReceive { message }
        | Happening::EndReceive { message } = event
        {
            self.text(", \"message\": ");
            self.message(*message);
        }
        if let Happening::Send { bytes, to, .. } = event {
            let _: std::io::Result<()> = write!(self.0, ", \"bytes\": {bytes}");
            self.text(", \"to\": ");
            self.name(to);
        }
        if let Some(time) = time_ns {
            let _: std::io::Result<()> = write!(self.0, ", \"time_us\": {}.{:03}", time / 1000, time % 1000);
        }
        self.text("}\n");
    }

    /// The lines, which are whole; none are left.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn name(&mut self, name: &Name) {
        let _: std::io::Result<()> = match name {
            Name::Rank(rank) => write!(self.0, "{rank}"),
            Name::Text(text) => serde_json::to_writer(&mut self.0, text).map_err(Into::into),
        };
    }

    fn message(&mut self, message: MessageName) {
        let _: std::io::Result<()> = match message {
            MessageName::Stream(number) => write!(self.0, "{number}"),
            MessageName::Channel(channel) => {
                self.text("\"");
                match channel.communicator {
                    (0, 0) => Ok(()),
                    (members, made) => write!(self.0, "{members}.{made}:"),
                }
                .and_then(|()| write!(self.0, "{}>{}:", channel.from, channel.to))
                .and_then(|()| match channel.tag {
                    Some(tag) => write!(self.0, "{tag}\""),
                    None => write!(self.0, "c\""),
                })
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut lines = Lines::default();
        let channel = |communicator, tag| {
            MessageName::Channel(Channel {
                communicator,
                from: 0,
                to: 3,
                tag,
            })
        };
        let server = Name::Text("a \"server\".1".to_owned());
        lines.write(
            &Name::Rank(0),
            1_234_005,
            None,
            &Happening::Send {
                message: channel((0, 0), Some(7)),
                bytes: 8192,
                to: Name::Rank(3),
            },
        );
        lines.write(
            &Name::Rank(3),
            5,
            Some(2_000_017),
            &Happening::StartReceive {
                message: channel((0, 0), Some(7)),
            },
        );
        lines.write(
            &Name::Rank(3),
            0,
            None,
            &Happening::EndReceive {
                message: channel((2, 1), None),
            },
        );
        lines.write(
            &server,
            1000,
            None,
            &Happening::Send {
                message: MessageName::Stream(9),
                bytes: 1,
                to: Name::Text("c".to_owned()),
            },
        );
        lines.write(&server, 0, None, &Happening::Exit);
        assert_eq!(
            String::from_utf8(lines.take()).unwrap(),
            r#"{"process": 0, "type": "send", "cpu_us": 1234.005, "message": "0>3:7", "bytes": 8192, "to": 3}
{"process": 3, "type": "start_recv", "cpu_us": 0.005, "message": "0>3:7", "time_us": 2000.017}
{"process": 3, "type": "end_recv", "cpu_us": 0.000, "message": "2.1:0>3:c"}
{"process": "a \"server\".1", "type": "send", "cpu_us": 1.000, "message": 9, "bytes": 1, "to": "c"}
{"process": "a \"server\".1", "type": "exit", "cpu_us": 0.000}
"#
        );
    }
}
