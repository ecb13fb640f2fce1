//! The list of programs, with known failures.

use crate::case::{Case, How, Transport};
use crate::proof::{self, Proof};
use crate::pyverbs;

const SECONDS: u64 = 120;

/// Why a program runs over RoCEv2 only.
const NEEDS_ROCE: &str = "only RoCE devices have datagrams with the connection manager (RDMA_PS_UDP), multicast, and \
                          extended reliable connections (XRC)";
/// Why a program does not run over EFE.
const NO_DATAGRAMS: &str = "EFE carries connections, no datagrams (UD)";
/// The port of udaddy, which has no option for it.
const UDADDY_PORT: u16 = 7174;

impl Case {
    fn new(group: &'static str, package: &'static str, how: How, proof: Proof) -> Case {
        Case {
            group,
            package,
            transport: Transport::Ib,
            how,
            proof,
            seconds: SECONDS,
            missing: None,
            shown: None,
            codes: &[0],
            port: None,
        }
    }

    fn iwarp(self) -> Case {
        Case { transport: Transport::Iwarp, ..self }
    }

    fn both(self) -> [Case; 2] {
        [self.clone(), self.iwarp()]
    }

    /// Returns the case of the same program over EFE, if there is one. Programs of these groups use any
    /// device whose connections behave like those of InfiniBand.
    fn over_efe(&self) -> Option<Case> {
        let groups = ["Connection manager", "rsockets", "perftest", "Pingpongs of rdma-core"];
        if self.transport != Transport::Ib || !groups.contains(&self.group) || self.missing.is_some() {
            return None;
        }
        // Without shared memory, a busy machine takes longer.
        let efe = Case { transport: Transport::Efe, seconds: self.seconds * 2, ..self.clone() };
        let title = self.title();
        let is_datagrams = title.contains("-c UD") || title.starts_with("ibv_ud_pingpong");
        Some(if is_datagrams { efe.missing(NO_DATAGRAMS) } else { efe })
    }

    fn within(self, seconds: u64) -> Case {
        Case { seconds, ..self }
    }

    fn missing(self, reason: &'static str) -> Case {
        // Known failures have a short time limit.
        Case { missing: Some(reason), seconds: 10, ..self }
    }
}

fn alone(command: &str) -> How {
    How::Alone(command.into())
}

/// A server that exits when its client does.
fn pair(server: &str, client: &str) -> How {
    How::Pair { server: server.into(), client: client.into(), ends: true }
}

/// A server that keeps running.
fn server(server: &str, client: &str) -> How {
    How::Pair { server: server.into(), client: client.into(), ends: false }
}

/// Returns all cases, in the order of the page.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    devices(&mut all);
    manager(&mut all);
    perftest(&mut all);
    pingpongs(&mut all);
    qperf(&mut all);
    libfabric(&mut all);
    ucx(&mut all);
    all.extend(pyverbs::cases());
    further(&mut all);
    // A device that speaks RoCEv2 presents itself in the same way, so the same programs use it.
    all.into_iter()
        .flat_map(|case| {
            let speaks_roce = case.transport == Transport::Ib && case.group != pyverbs::GROUP;
            let missing = case.missing.filter(|reason| *reason != NEEDS_ROCE);
            let roce = speaks_roce.then(|| Case { transport: Transport::Roce, missing, ..case.clone() });
            let efe = case.over_efe();
            [case].into_iter().chain(roce).chain(efe)
        })
        .collect()
}

fn devices(all: &mut Vec<Case>) {
    let case = |command, proof| Case::new("Devices", "ibverbs-utils", alone(command), proof);
    all.extend(case("ibv_devices", Proof::Says(&["kiban0"])).both());
    all.push(case(
        "ibv_devinfo -v",
        Proof::Says(&[
            "hca_id:\tkiban0",
            "InfiniBand (0)",
            "PORT_ACTIVE (4)",
            "Ethernet",
            "GID[  0]:",
            "RoCE v2",
        ]),
    ));
    all.push(
        case("ibv_devinfo -v", Proof::Says(&["hca_id:\tkiban0", "iWARP (1)", "PORT_ACTIVE (4)", "Ethernet"]))
            .iwarp(),
    );
    let proof = Proof::Says(&["hca_id:\tkiban0", "unspecified (4)", "PORT_ACTIVE (4)", "Ethernet"]);
    all.push(Case { transport: Transport::Efe, ..case("ibv_devinfo -v", proof) });
}

fn manager(all: &mut Vec<Case>) {
    let case = |how, proof| Case::new("Connection manager", "rdmacm-utils", how, proof);
    for (server, client) in [
        ("rping -s -a 127.0.0.1 -p {port} -v -C 10", "rping -c -a 127.0.0.1 -p {port} -v -V -C 10"),
        (
            "rping -s -a 127.0.0.1 -p {port} -v -C 10 -S 60000",
            "rping -c -a 127.0.0.1 -p {port} -v -V -C 10 -S 60000",
        ),
    ] {
        all.extend(case(pair(server, client), Proof::Check(proof::rping)).both());
    }
    all.push(case(
        pair("rping -s -a ::1 -p {port} -v -C 10", "rping -c -a ::1 -p {port} -v -V -C 10"),
        Proof::Check(proof::rping),
    ));
    all.push(case(
        server("rping -s -P -a 127.0.0.1 -p {port} -v", "rping -c -a 127.0.0.1 -p {port} -v -V -C 10"),
        Proof::Check(proof::rping_client),
    ));
    all.push(case(
        pair("rping -s -q -a 127.0.0.1 -p {port} -v -C 10", "rping -c -q -a 127.0.0.1 -p {port} -v -V -C 10"),
        Proof::Check(proof::rping),
    ));
    all.extend(
        case(
            pair("rdma_server -s 127.0.0.1 -p {port}", "rdma_client -s 127.0.0.1 -p {port}"),
            Proof::Both(&["rdma_server: end 0"], &["rdma_client: end 0"]),
        )
        .both(),
    );
    let extended = |kind: &str| {
        case(
            pair(
                &format!("rdma_xserver -p {{port}} -c {kind}"),
                &format!("rdma_xclient -p {{port}} -c {kind}"),
            ),
            Proof::Both(&["rdma_xserver: end 0"], &["rdma_xclient: end 0"]),
        )
    };
    all.extend(extended("r").both());
    all.push(extended("x").missing(NEEDS_ROCE));
    all.extend(
        case(
            pair(
                "ucmatose -b 127.0.0.1 -p {port} -c 5 -C 20 -S 1000",
                "ucmatose -s 127.0.0.1 -p {port} -c 5 -C 20 -S 1000",
            ),
            Proof::Both(
                &["data transfers complete", "test complete", "return status 0"],
                &["data transfers complete", "test complete", "return status 0"],
            ),
        )
        .both(),
    );
    all.push(case(
        pair("ucmatose -m -b 127.0.0.1 -p {port}", "ucmatose -m -s 127.0.0.1 -p {port}"),
        Proof::Both(&["migrating", "return status 0"], &["migrating", "test complete", "return status 0"]),
    ));
    all.extend(
        case(
            server("cmtime -b 127.0.0.1 -p {port} -c 50", "cmtime -s 127.0.0.1 -p {port} -c 50"),
            Proof::Says(&["resolve addr", "create qp", "connect   ", "disconnect", "destroy"]),
        )
        .both(),
    );
    for (server, client) in [
        ("udaddy -b 127.0.0.1", "udaddy -s 127.0.0.1"),
        ("udaddy -b 127.0.0.1 -c 3 -C 20 -S 1000", "udaddy -s 127.0.0.1 -c 3 -C 20 -S 1000"),
        ("udaddy -b ::1", "udaddy -s ::1"),
    ] {
        let proof = Proof::Both(
            &["receiving data transfers", "sending replies", "data transfers complete", "return status 0"],
            &["initiating data transfers", "data transfers complete", "return status 0"],
        );
        let udaddy = case(pair(server, client), proof).missing(NEEDS_ROCE);
        all.push(Case { port: Some(UDADDY_PORT), ..udaddy });
    }
    let case = |how, proof| Case::new("rsockets", "rdmacm-utils", how, proof);
    all.push(case(
        server("rcopy -p {port}", "rcopy {folder}/source 127.0.0.1:{folder}/target -p {port}"),
        Proof::Check(proof::copied),
    ));
    all.push(case(
        pair(
            "rstream -b 127.0.0.1 -p {port} -S 65536 -I 20 -C 20 -T v",
            "rstream -s 127.0.0.1 -p {port} -S 65536 -I 20 -C 20 -T v",
        ),
        Proof::Check(proof::rstream),
    ));
    all.push(case(
        pair(
            "riostream -b 127.0.0.1 -p {port} -S 65536 -I 20 -C 20 -T v",
            "riostream -s 127.0.0.1 -p {port} -S 65536 -I 20 -C 20 -T v",
        ),
        Proof::Check(proof::rstream),
    ));
}

/// One run of perftest, with a single message size unless the options select more.
struct Run {
    program: &'static str,
    options: &'static str,
    iterations: u64,
    queues: u64,
    /// The powers of two between two sizes, inclusive.
    sizes: (u32, u32),
}

impl Run {
    fn case(&self) -> Case {
        let Run { program, options, iterations, queues, sizes } = *self;
        let size = if options.contains("-a") || program.contains("atomic") {
            String::new()
        } else {
            format!(" -s {}", 1 << sizes.0)
        };
        let command = format!("{program} -p {{port}} -F -n {iterations}{size}{options}");
        let sizes = (sizes.0..=sizes.1).map(|power| 1 << power).collect();
        Case::new(
            "perftest",
            "perftest",
            pair(&command, &format!("{command} 127.0.0.1")),
            Proof::Perftest { sizes, iterations: iterations * queues },
        )
    }
}

fn perftest(all: &mut Vec<Case>) {
    for program in ["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat"] {
        let is_latency = program.ends_with("lat");
        let (iterations, size) = if is_latency { (1000, 6) } else { (500, 16) };
        let run = |options| Run { program, options, iterations, queues: 1, sizes: (size, size) };
        for (manager, plain) in [
            (true, [" -R", " -R -q 4", " -R -e", " -R -a", " -R --use-srq"]),
            (false, ["", " -q 4", " -e", " -a", " --use-srq"]),
        ] {
            let [one, four, events, sizes, shared] = plain;
            if manager {
                all.extend(run(one).case().both());
            } else {
                all.push(run(one).case());
            }
            // perftest measures latency with one queue pair only.
            if !is_latency {
                all.push(Run { queues: 4, ..run(four) }.case());
            }
            // perftest does not support events for Writes.
            if !program.starts_with("ib_write") {
                all.push(run(events).case());
            }
            all.push(Run { sizes: (1, 23), iterations: 5, ..run(sizes) }.case().within(240));
            if program.starts_with("ib_send") {
                all.push(run(shared).case());
            }
        }
    }
    for program in ["ib_atomic_bw", "ib_atomic_lat"] {
        let run = |options| Run { program, options, iterations: 500, queues: 1, sizes: (3, 3) }.case();
        for options in ["", " -A CMP_AND_SWAP", " -A FETCH_AND_ADD"] {
            all.push(run(options));
        }
        all.push(run(" -R"));
    }
    for options in [" -c UD", " -c UC"] {
        let run = Run { program: "ib_send_lat", options, iterations: 500, queues: 1, sizes: (6, 6) };
        all.push(run.case());
    }
    let run = |options, program| Run { program, options, iterations: 500, queues: 1, sizes: (12, 12) };
    all.push(run(" -b", "ib_write_bw").case());
    all.push(run(" -R -b", "ib_send_bw").case());
    all.push(run(" -l 4", "ib_write_bw").case());
    all.push(Run { sizes: (6, 6), ..run(" -I 64", "ib_write_lat") }.case());
}

fn pingpongs(all: &mut Vec<Case>) {
    let case = |program: &str, options: &str| {
        let command = format!("{program} -p {{port}} -g 0{options}");
        let client = format!("{command} 127.0.0.1");
        Case::new(
            "Pingpongs of rdma-core",
            "ibverbs-utils",
            pair(&command, &client),
            Proof::Check(proof::pingpong),
        )
    };
    for options in ["", " -e", " -c", " -N", " -s 1048576 -n 50", " -t"] {
        all.push(case("ibv_rc_pingpong", options));
    }
    all.push(
        case("ibv_rc_pingpong", "")
            .iwarp()
            .missing("an iWARP device connects only through the connection manager"),
    );
    for options in ["", " -e", " -c"] {
        all.push(case("ibv_ud_pingpong", options));
    }
    // Do not use -c: the program would then check a buffer to which several receives write at once.
    for options in ["", " -e"] {
        all.push(case("ibv_srq_pingpong", options));
    }
    for options in ["", " -e", " -c"] {
        all.push(case("ibv_uc_pingpong", options));
    }
    for options in ["", " -e"] {
        let xrc = case("ibv_xsrq_pingpong", options).missing(NEEDS_ROCE);
        all.push(Case { proof: Proof::Says(&["success"]), ..xrc });
    }
}

fn qperf(all: &mut Vec<Case>) {
    for (test, check) in [
        ("rc_lat", proof::qperf_latency as fn(&_) -> _),
        ("rc_bw", proof::qperf_bandwidth),
        ("rc_rdma_write_bw", proof::qperf_bandwidth),
        ("rc_rdma_read_bw", proof::qperf_bandwidth),
        ("ud_lat", proof::qperf_latency),
        ("rc_rdma_write_lat", proof::qperf_latency),
        ("rc_rdma_read_lat", proof::qperf_latency),
        ("rc_bi_bw", proof::qperf_bandwidth),
        ("ud_bw", proof::qperf_send_bandwidth),
        ("rc_compare_swap_mr", proof::qperf_rate),
        ("rc_fetch_add_mr", proof::qperf_rate),
    ] {
        let client = format!("qperf 127.0.0.1 -lp {{port}} -t 1 {test}");
        let case = Case::new("qperf", "qperf", server("qperf -lp {port}", &client), Proof::Check(check));
        all.push(case);
    }
    all.push(Case::new(
        "qperf",
        "qperf",
        server("qperf -lp {port}", "qperf 127.0.0.1 -lp {port} -t 1 -cm1 rc_lat"),
        Proof::Check(proof::qperf_latency),
    ));
}

fn libfabric(all: &mut Vec<Case>) {
    let case = |how, proof| Case::new("libfabric", "libfabric-bin", how, proof);
    all.extend(
        case(alone("fi_info -p verbs"), Proof::Says(&["provider: verbs", "type: FI_EP_MSG", "kiban"])).both(),
    );
    for options in ["-p verbs -e msg", "-p verbs;ofi_rxm -e rdm"] {
        for more in ["-S 64", "-S 65536 -c", "-S 1048576"] {
            let how = pair(
                &format!("fi_pingpong -B {{port}} {options} -I 50 {more}"),
                &format!("fi_pingpong -P {{port}} {options} -I 50 {more} {{host}}"),
            );
            all.push(case(how, Proof::Check(proof::fi_pingpong)));
        }
        let how = pair(
            &format!("fi_pingpong -B {{port}} {options} -I 50 -S 64"),
            &format!("fi_pingpong -P {{port}} {options} -I 50 -S 64 {{host}}"),
        );
        all.push(case(how, Proof::Check(proof::fi_pingpong)).iwarp());
    }
}

fn ucx(all: &mut Vec<Case>) {
    let case = |how, proof| Case::new("UCX", "ucx-utils", how, proof);
    all.push(case(
        alone("ucx_info -d"),
        Proof::Says(&["Transport: rc_verbs", "Transport: ud_verbs", "Device: kiban0:1"]),
    ));
    all.push(
        case(alone("ucx_info -d"), Proof::Says(&["Transport: rc_verbs"]))
            .iwarp()
            .missing("UCX ignores iWARP devices"),
    );
    for transport in ["rc_verbs,ud_verbs", "ud_verbs"] {
        for (test, size) in
            [("tag_lat", 8), ("tag_bw", 65536), ("ucp_put_lat", 64), ("ucp_get", 4096), ("ucp_am_lat", 64)]
        {
            let set = format!("UCX_TLS={transport} UCX_NET_DEVICES=kiban0:1");
            let how = pair(
                &format!("{set} ucx_perftest -p {{port}}"),
                &format!("{set} ucx_perftest -p {{port}} 127.0.0.1 -t {test} -s {size} -n 1000 -w 100"),
            );
            all.push(case(how, Proof::Check(proof::ucx_perftest)));
        }
    }
}

/// Adds further programs; their scripts are in this directory.
fn further(all: &mut Vec<Case>) {
    let shown = |case: Case, shown| Case { shown: Some(shown), ..case };
    let case = |package, command: &str, proof| Case::new("Other programs", package, alone(command), proof);
    let agree = Proof::Says(&["2 ranks agree"]);
    let apart = Proof::Says(&["2 ranks agree, 2 host names"]);
    let root = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    let ucx = "UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=kiban0:1";
    let by_ucx = "--mca pml ucx";
    let by_libfabric = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm";
    let program = "/usr/bin/python3 {here}/mpi.py";
    all.push(shown(
        case(
            "openmpi-bin",
            &format!("{root} {ucx} mpirun --oversubscribe -np 2 {by_ucx} {program}"),
            agree.clone(),
        ),
        "OpenMPI, 2 ranks on one host, UCX over rc_verbs",
    ));
    all.push(shown(
        case("openmpi-bin", &format!("{root} mpirun --oversubscribe -np 2 {by_libfabric} {program}"), agree),
        "OpenMPI, 2 ranks on one host, libfabric verbs;ofi_rxm",
    ));
    all.push(shown(
        case(
            "openmpi-bin",
            &format!("{ucx} {{here}}/namespaces.sh mpi -x UCX_TLS -x UCX_NET_DEVICES {by_ucx} {program}"),
            apart.clone(),
        ),
        "OpenMPI, 2 ranks in two network namespaces, UCX over rc_verbs",
    ));
    all.push(shown(
        case("openmpi-bin", &format!("{{here}}/namespaces.sh mpi {by_libfabric} {program}"), apart),
        "OpenMPI, 2 ranks in two network namespaces, libfabric verbs;ofi_rxm",
    ));
    for (options, title) in [
        ("-m 239.77.3.1 -C 20 -S 1000", "mckey, 3 processes in two network namespaces"),
        ("-m ff15::77:3:1", "mckey over IPv6, 3 processes in two network namespaces"),
    ] {
        let command = format!("{{here}}/namespaces.sh mckey {options}");
        let mckey = case("rdmacm-utils", &command, Proof::Says(&["3 members are done"]));
        all.push(shown(mckey.missing(NEEDS_ROCE), title));
    }
    for (options, title) in [
        ("ib_write_bw -F -n 500", "ib_write_bw between two network namespaces"),
        ("ib_send_lat -F -n 500 -s 64 -R", "ib_send_lat -R between two network namespaces"),
    ] {
        all.push(shown(
            case(
                "perftest",
                &format!("{{here}}/namespaces.sh perftest {options}"),
                Proof::Check(proof::perftest_rows),
            ),
            title,
        ));
    }
    all.push(shown(
        case(
            "python3-pyverbs",
            "/usr/bin/python3 {here}/pyverbs_write.py",
            Proof::Says(&["100000 bytes arrived as they were written"]),
        ),
        "a Python program that uses pyverbs",
    ));
    let nccl = case(
        "libibverbs-dev",
        "{here}/compiled.sh {here}/nccl.c {folder}",
        Proof::Says(&["device kiban0 would be used"]),
    );
    let title = "a program that looks for devices as NCCL does (dlvsym)";
    all.push(shown(nccl.clone(), title));
    all.push(shown(nccl.iwarp().missing("NCCL uses only the InfiniBand transport"), title));
}
