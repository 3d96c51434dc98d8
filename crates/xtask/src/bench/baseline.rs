//! What the Go implementation of Operating System Manager (v1.11.3+) needs, measured on the same kind of machine: two cores
//! that etcd, kube-apiserver and one process share, default flags, MachineDeployments ubuntu/aws.

/// Its figures for one number of MachineDeployments, as text. Those that were not measured are a dash.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// MachineDeployments.
    pub count: usize,
    /// Created until the bootstrap Secret is there: p50 / p99.
    pub created: &'static str,
    /// Revision changed until the bootstrap Secret is there again: p50 / p99.
    pub rotated: &'static str,
    /// How long the bootstrap Secret was absent during the rotation: p50 / max.
    pub absent: &'static str,
    /// Requests for each: created / rotated / deleted.
    pub requests: &'static str,
    /// CPU for each: created / rotated.
    pub cpu: &'static str,
    /// Peak memory.
    pub rss: &'static str,
}

/// One entry for each number of MachineDeployments that was measured.
const MEASURED: [Baseline; 5] = [
    Baseline {
        count: 1,
        created: "0.40 s",
        rotated: "0.16 s",
        absent: "0.09 s",
        requests: "6 / 8 / 5",
        cpu: "50 / 50 ms",
        rss: "41 MiB",
    },
    Baseline {
        count: 10,
        created: "0.87 / 0.92 s",
        rotated: "0.6 / 0.7 s",
        absent: "0.4 / 0.5 s",
        requests: "6.6 / 8 / 5",
        cpu: "32 / 31 ms",
        rss: "50 MiB",
    },
    Baseline {
        count: 100,
        created: "3.4 / 5.0 s",
        rotated: "5.2 / 5.6 s",
        absent: "1.0 / 5.0 s",
        requests: "6.0 / 7.7 / 5",
        cpu: "21 / 21 ms",
        rss: "66 MiB",
    },
    Baseline {
        count: 500,
        created: "10.4 / 17.7 s",
        rotated: "16 to 30 / 17 to 31 s",
        absent: "5 to 7 / 14 to 27 s",
        requests: "6.0 / 7.8 / 5",
        cpu: "19 / 20 ms",
        rss: "123 MiB",
    },
    Baseline {
        count: 2000,
        created: "78.6 / 108.6 s",
        rotated: "98 / 108 s",
        absent: "24.8 / 83.8 s",
        requests: "6.0 / 7.8 / –",
        cpu: "22 / 23 ms",
        rss: "340 MiB",
    },
];

/// The figures for exactly this number.
pub fn of(count: usize) -> Option<Baseline> {
    MEASURED.into_iter().find(|measured| measured.count == count)
}
