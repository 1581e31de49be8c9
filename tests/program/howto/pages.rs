//! What the pages' commands are on the test's machine.

/// How a command is run.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// To its end, which is 0.
    Runs,
    /// Until it says this; then something else runs, and it is interrupted as by Ctrl-C. Its end is 0.
    Until(&'static str, &'static str),
    /// Not here, but there.
    Elsewhere(&'static str),
}

/// A command of a page.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// As the page has it.
    pub(super) typed: &'static str,
    /// What runs: shorter, or about what there is here.
    pub(super) instead: Option<&'static str>,
    pub(super) how: How,
    /// What a line of its output contains.
    pub(super) shows: &'static str,
    /// Whether the page has it outside of blocks.
    pub(super) in_prose: bool,
}

/// A page of `docs/howto`.
pub(super) struct Page {
    pub(super) name: &'static str,
    /// What is there before.
    pub(super) before: &'static str,
    /// Where the files of the page are written to, in their order.
    pub(super) files: &'static [&'static str],
    pub(super) steps: &'static [Step],
}

const fn runs(typed: &'static str) -> Step {
    Step {
        typed,
        instead: None,
        how: How::Runs,
        shows: "",
        in_prose: false,
    }
}

/// Emulates eth0 until a ping to db1 has come back.
const fn emulates(typed: &'static str) -> Step {
    runs(typed).until("emulating on", "ping -c 2 -i 0.2 db1")
}

const fn elsewhere(typed: &'static str, place: &'static str) -> Step {
    Step {
        how: How::Elsewhere(place),
        ..runs(typed)
    }
}

const fn prose(typed: &'static str) -> Step {
    Step {
        in_prose: true,
        ..runs(typed)
    }
}

impl Step {
    const fn until(self, said: &'static str, then: &'static str) -> Self {
        Self {
            how: How::Until(said, then),
            ..self
        }
    }

    const fn in_prose(self) -> Self {
        Self {
            in_prose: true,
            ..self
        }
    }

    const fn shows(self, shows: &'static str) -> Self {
        Self { shows, ..self }
    }

    const fn instead(self, command: &'static str) -> Self {
        Self {
            instead: Some(command),
            ..self
        }
    }
}

pub(super) const PAGES: &[Page] = &[
    Page {
        name: "changes",
        before: "",
        files: &["played.yaml"],
        steps: &[
            runs("perturb check configs/scenarios/lte-drive.yaml --svg lte.svg").shows("Down or stopped for"),
            prose("run --marks")
                .instead("perturb run --marks configs/scenarios/flapping-link.yaml -- sleep 1")
                .shows("down for"),
            runs("perturb tcp configs/scenarios/lte-drive.yaml --for 120s --svg tcp.svg")
                .instead("perturb tcp configs/scenarios/lte-drive.yaml --for 3s --svg tcp.svg")
                .shows("cubic"),
        ],
    },
    Page {
        name: "containers",
        before: concat!(
            "export ENGINE=podman\n",
            include_str!("../containers/engine.sh"),
            r#"
            printf 'version: 1\nservers: { up: { latency: 40ms } }\nclasses: [{ match: {}, egress: [up] }]\n' >wan.yaml
            service db --label app=db
            service web --label com.docker.compose.project=shop
            service other
            service eu --label region=eu
            service us --label region=us
            service us2 --label region=us
            cp "$REPOSITORY/tests/program/containers/regions."* .
            trip() { engine exec "$1" ping -c 3 -i 0.2 -q "$(address "$2")"; }
            "#
        ),
        files: &[],
        steps: &[
            runs("perturb apply wan.yaml --container db")
                .until("emulating on", "trip db other")
                .shows("min/avg/max = 4"),
            runs("perturb apply wan.yaml --container label=app=db --detach").shows("emulating on"),
            runs("perturb apply wan.yaml --compose shop --network front")
                .until("emulating on", "trip web db")
                .shows("min/avg/max = 8"),
            runs("perturb status").shows("db:eth0"),
            runs("perturb clear --container label=app=db").shows("db:eth0"),
            runs("perturb apply regions.yaml --container label=region")
                .until("emulating on", "trip eu us2; trip us us2")
                .shows("min/avg/max = 80"),
        ],
    },
    Page {
        name: "figure",
        before: "",
        files: &[],
        steps: &[
            runs("perturb reproduce").shows("martin-fig-3.2"),
            runs("perturb reproduce martin-fig-3.2 --out figures"),
            elsewhere(
                "perturb reproduce models --out figures",
                "tests/golden/reproduce.rs",
            ),
            runs("sudo perturb reproduce martin-table-2.2-measured")
                .instead("sudo perturb reproduce martin-table-2.2-measured --quick --out figures"),
            prose("perturb reproduce --results figures").shows("martin-fig-3.2"),
        ],
    },
    Page {
        name: "machines",
        before: "",
        files: &[],
        steps: &[
            elsewhere(
                "perturb apply wan.yaml --on 'n[01-32],login' --iface ib0",
                "tests/program/machines",
            ),
            elsewhere("perturb status --on 'n[01-32],login'", "tests/program/machines"),
            elsewhere("perturb clear --on 'n[01-32],login'", "tests/program/machines"),
            elsewhere(
                "perturb run wan.yaml --on 'n[01-32]' --iface ib0 --mpi -- ./solver",
                "tests/program/machines",
            ),
            elsewhere(
                "salloc -N 4 perturb run wan.yaml --on slurm --iface ib0 --mpi -- ./solver",
                "tests/program/machines",
            ),
            elsewhere("perturb check bus.yaml --core 8", "tests/program/machines"),
            elsewhere(
                "perturb run bus.yaml --hosts 2,3,3 --on 'n[02-03]' --mpi -- ./solver",
                "tests/program/machines",
            ),
            elsewhere(
                "perturb run bus.yaml --hosts 1,machine,container=web+db --on 'n[02-03]' -- ping 10.77.0.2",
                "tests/program/machines",
            ),
            elsewhere("perturb measure --peer n02", "tests/program/machines").in_prose(),
        ],
    },
    Page {
        name: "measure",
        before: "ip netns exec db1 perturb measure serve >served 2>&1 &",
        files: &[],
        steps: &[
            runs("perturb measure serve").instead("wait_for served 4798; cat served").shows("4798"),
            runs("perturb measure --peer db1 --profile db1.yaml --network db1.net.yaml"),
            emulates("sudo perturb apply db1.yaml --iface eth0").shows("0% packet loss"),
            runs("perturb measure --peer db1 --for 10min --every 100ms --trace path.csv")
                .instead("perturb measure --peer db1 --for 2s --every 100ms --trace path.csv; cat path.csv")
                .shows("time,latency,bandwidth,loss"),
            elsewhere(
                "perturb measure --groups a1,a2,a3/b1,b2,b3",
                "tests/program/topology",
            ),
            // Its verdict is one of times: on a busy machine it may be asked for again.
            runs("sudo perturb calibrate db1.yaml")
                .instead("for attempt in 1 2 3; do perturb calibrate db1.yaml && break; done")
                .shows("pass"),
            elsewhere(
                "sudo perturb calibrate --peer db1 --iface eth0",
                "tests/program/machines/calibrate.sh",
            ),
        ],
    },
    Page {
        name: "mobile",
        before: "",
        files: &["mobile.yaml"],
        steps: &[
            prose("perturb run mobile.yaml -- ping -c 20 -i 0.2 h2").shows("20 packets transmitted"),
        ],
    },
    Page {
        name: "netem",
        before: "",
        files: &[],
        steps: &[
            // This machine's kernel may have no netem.
            runs("tc -j qdisc show | perturb import netem > mine.yaml")
                .instead("perturb import netem 'delay 30ms loss 1%' > mine.yaml"),
            runs("perturb check mine.yaml").shows("30ms"),
            // Where there is a netem.
            elsewhere("sudo tc qdisc del dev eth0 root", "tests/e2e/statistics"),
            emulates("sudo perturb apply mine.yaml --iface eth0").shows("time=3"),
            elsewhere(
                "PERTURB_BIN=$PWD/target/debug/perturb cargo test -p perturb-tests --test e2e statistics",
                "tests/e2e/statistics",
            ),
        ],
    },
    Page {
        name: "tests",
        before: "export PYTHONPATH=bindings/python/src PYTHONDONTWRITEBYTECODE=1",
        files: &["test_page.py"],
        steps: &[
            prose("pytest")
                .instead("PERTURB_BIN=$PERTURB /usr/bin/python3 -m pytest -q -p no:cacheprovider -p perturb.pytest_plugin test_page.py")
                .shows("3 passed"),
        ],
    },
    Page {
        name: "wan",
        before: "printf '#!/bin/sh\\nhostname\\n' >solver; chmod +x solver",
        files: &["wan.yaml", "spared.yaml", "regions.yaml", "regions.csv"],
        steps: &[
            prose("perturb check wan.yaml").shows("30ms"),
            runs("perturb run wan.yaml -- ping -c 3 h2").shows("time=6"),
            runs("perturb run wan.yaml -- sh -c 'perturb on h2 -- iperf3 -s -1 -D; sleep 1; iperf3 -c h2'")
                .instead("perturb run wan.yaml -- sh -c 'perturb on h2 -- iperf3 -s -1 -D; sleep 1; iperf3 -t 3 -c h2'")
                .shows("receiver"),
            runs("perturb run --mpi wan.yaml --hosts 4 -- ./solver").shows("h4"),
            emulates("sudo perturb apply wan.yaml --iface eth0").shows("time=6"),
            emulates("sudo perturb apply wan.yaml --iface eth0")
                .in_prose()
                .instead("perturb apply spared.yaml --iface eth0")
                .shows("time=6"),
            prose("perturb run regions.yaml --hosts 3")
                .instead("perturb run regions.yaml --hosts 3 -- ping -c 2 h3")
                .shows("time=8"),
        ],
    },
    Page {
        name: "watch",
        before: r#"
            printf 'version: 1\nservers: { up: { latency: 20ms } }\nclasses: [{ name: web, match: {}, egress: [up] }]\n' >lossy.yaml
            id() { perturb status --json | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' | head -1; }
            "#,
        files: &[],
        steps: &[
            runs("perturb apply lossy.yaml --iface eth0 --detach --metrics 127.0.0.1:9464")
                .shows("emulating on"),
            prose("--metrics 127.0.0.1:9464")
                .instead("ping -c 2 -i 0.2 db1; curl -sS http://127.0.0.1:9464/metrics")
                .shows("perturb_class_delay_seconds"),
            prose("perturb top [ID]")
                .instead("(sleep 2; echo q) | perturb top --plain")
                .shows("web"),
            runs("perturb capture --class web --for 10s --out x.pcapng")
                .instead("ping -c 10 -i 0.2 db1 & perturb capture --class web --for 3s --out x.pcapng; wait; tshark -r x.pcapng -T fields -e frame.comment")
                .shows("web"),
            runs(r#"api() { curl --unix-socket /run/perturb/ID/api -sS "http://perturb$1" "${@:2}"; }"#)
                .instead(r#"api() { curl --unix-socket "/run/perturb/$(id)/api" -sS "http://perturb$1" "${@:2}"; }"#),
            runs("api /v1/status").shows("web"),
            runs(r#"api /v1/profile -X PATCH -H 'Content-Type: application/merge-patch+json' -d '{"servers": {"up": {"latency": "80ms"}}}'"#),
            prose("turn it by steps").instead("ping -c 2 -i 0.2 db1").shows("time=8"),
            runs("api /v1/pause -X POST"),
            prose("pause (`p`)").instead("ping -c 2 -i 0.2 db1").shows("time=0"),
            runs("api /v1/resume -X POST"),
            runs("api /v1/events -N")
                .instead("api /v1/events -N --max-time 2 || [ $? = 28 ]"),
        ],
    },
    Page {
        name: "whatif",
        before: r#"
            mpicc -O2 -o kernel "$REPOSITORY/tests/mpi/kernel.c" -lm
            printf '#!/bin/sh\nexec ./kernel ring 5 1000 300 1000 1000 1000 1000\n' >solver; chmod +x solver
            export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
            "#,
        files: &["edited.yaml"],
        steps: &[
            runs("perturb trace --out four.jsonl --scenario four.yaml -- mpirun -n 4 ./solver"),
            runs("perturb predict whatif four.yaml")
                .instead("{ cat edited.yaml; echo; grep '^events' four.yaml; } >edited && perturb predict whatif edited"),
            runs("perturb predict whatif four.yaml --suggest 2"),
        ],
    },
];
