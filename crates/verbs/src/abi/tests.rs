//! Compares layouts and constants with the C headers.

use super::declare::Layout;
use super::*;
use std::collections::HashMap;
use std::fmt::Write;
use std::process::Command;

const LAYOUTS: [&[Layout]; 12] = [
    address::LAYOUTS,
    cm::LAYOUTS,
    completion::LAYOUTS,
    context::LAYOUTS,
    device::LAYOUTS,
    events::LAYOUTS,
    extra::LAYOUTS,
    kernel::LAYOUTS,
    memory::LAYOUTS,
    queue::LAYOUTS,
    shared::LAYOUTS,
    work::LAYOUTS,
];

const NUMBERS: [&[(&str, i128)]; 10] = [
    address::NUMBERS,
    cm::NUMBERS,
    completion::NUMBERS,
    device::NUMBERS,
    events::NUMBERS,
    extra::NUMBERS,
    memory::NUMBERS,
    queue::NUMBERS,
    shared::NUMBERS,
    work::NUMBERS,
];

/// Returns every C expression with the value that it has in this crate.
fn ours() -> Vec<(String, i128)> {
    let number = |bytes: usize| i128::try_from(bytes).expect("a size is small");
    let mut all = Vec::new();
    for layout in LAYOUTS.into_iter().flatten() {
        let name = layout.name;
        all.push((format!("sizeof({name})"), number(layout.bytes)));
        all.push((format!("_Alignof({name})"), number(layout.alignment)));
        for (field, offset) in layout.fields {
            let field = field.trim_start_matches("r#");
            all.push((format!("offsetof({name}, {field})"), number(*offset)));
        }
    }
    all.extend(NUMBERS.into_iter().flatten().map(|(name, value)| ((*name).to_owned(), *value)));
    all
}

/// Evaluates the expressions with a C compiler.
fn theirs(expressions: &[(String, i128)]) -> HashMap<String, i128> {
    let folder = std::env::temp_dir().join(format!("kiban-verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room for a test program");
    let mut source = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
         #include <rdma/rsocket.h>\n#include <rdma/ib_user_verbs.h>\n#include <rdma/ib_user_sa.h>\nint main(void) {\n",
    );
    for (expression, value) in expressions {
        // A 64-bit mask is unsigned in C.
        let (format, cast) = if *value > i128::from(i64::MAX) {
            ("%llu", "unsigned long long")
        } else {
            ("%lld", "long long")
        };
        writeln!(source, "printf(\"%s\\t{format}\\n\", \"{expression}\", ({cast})({expression}));")
            .expect("a string takes it");
    }
    source += "return 0; }\n";
    let (file, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&file, source).expect("the folder was just made");
    let built = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .output()
        .expect("a C compiler: install gcc");
    assert!(
        built.status.success(),
        "install libibverbs-dev and librdmacm-dev, 44 or newer:\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let told = Command::new(&program).output().expect("it was just built");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    let told = String::from_utf8(told.stdout).expect("names are ASCII");
    told.lines()
        .map(|line| line.split_once('\t').expect("two columns"))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect()
}

#[test]
fn sizes_offsets_and_constants_match_the_headers() {
    let ours = ours();
    let theirs = theirs(&ours);
    let different: Vec<String> = ours
        .iter()
        .filter(|(name, value)| theirs.get(name) != Some(value))
        .map(|(name, value)| format!("{name}: {value} here, {:?} there", theirs.get(name)))
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(ours.len() > 900, "only {} were compared", ours.len());
}

/// Sizes and offsets measured on x86-64, as a check that does not depend on the installed headers.
#[cfg(target_arch = "x86_64")]
#[test]
fn sizes_and_offsets_match_those_measured_on_x86_64() {
    macro_rules! check {
        ($($name:ident $bytes:literal $alignment:literal $($field:ident $offset:literal)*;)*) => {
            $(
                assert_eq!((size_of::<$name>(), align_of::<$name>()), ($bytes, $alignment), stringify!($name));
                $(assert_eq!(core::mem::offset_of!($name, $field), $offset, stringify!($name.$field));)*
            )*
        };
    }
    check! {
        ibv_device 664 8 node_type 16 transport_type 20 name 24 dev_name 88 dev_path 152 ibdev_path 408;
        ibv_context 328 8 device 0 ops 8 cmd_fd 264 async_fd 268 num_comp_vectors 272 mutex 280 abi_compat 320;
        ibv_context_ops 256 8 alloc_mw 56 bind_mw 64 dealloc_mw 72 poll_cq 88 req_notify_cq 96 post_srq_recv 160
            post_send 200 post_recv 208;
        verbs_context 648 8 r#priv 208 sz 312 context 320 query_port 0 create_cq_ex 200 create_qp_ex 264
            query_device_ex 216 create_srq_ex 280 open_xrcd 288 ibv_create_flow 240 query_rt_values 192
            advise_mr 8 alloc_null_mr 16 get_srq_num 272 open_qp 256 post_srq_ops 144 alloc_td 128 alloc_parent_domain 112
            alloc_dm 64 modify_cq 136 modify_qp_rate_limit 104 create_wq 184;
        ibv_pd 16 8;
        ibv_mr 48 8;
        ibv_mw 32 8;
        ibv_cq 128 8 channel 8 cqe 28 mutex 32 comp_events_completed 120;
        ibv_cq_ex 288 8 comp_mask 128 status 132 wr_id 136 start_poll 144;
        ibv_comp_channel 16 8 fd 8 refcnt 12;
        ibv_qp 160 8 context 0 qp_num 52 state 56 qp_type 60 mutex 64;
        ibv_qp_ex 352 8 comp_mask 160 wr_start 320;
        ibv_srq 128 8;
        ibv_ah 24 8;
        ibv_wc 48 8;
        ibv_send_wr 128 8;
        ibv_recv_wr 32 8;
        ibv_sge 16 8;
        ibv_device_attr 232 8;
        ibv_device_attr_ex 400 8;
        ibv_port_attr 52 4 link_layer 46 flags 47 port_cap_flags2 48;
        ibv_qp_attr 144 8;
        ibv_qp_init_attr 64 8;
        ibv_qp_init_attr_ex 136 8;
        ibv_cq_init_attr_ex 56 8;
        ibv_async_event 16 8;
        ibv_gid_entry 32 8;
        ibv_srq_init_attr_ex 64 8;
        rdma_cm_id 416 8 verbs 0 channel 8 context 16 qp 24 route 32 ps 344 port_num 348 event 352 send_cq_channel 360
            send_cq 368 recv_cq_channel 376 recv_cq 384 srq 392 pd 400 qp_type 408;
        rdma_route 312 8;
        rdma_addr 296 8;
        rdma_cm_event 80 8 id 0 listen_id 8 event 16 status 20 param 24;
        rdma_conn_param 24 8;
        rdma_ud_param 56 8;
        rdma_event_channel 4 4;
        rdma_addrinfo 96 8;
        ibv_sa_path_rec 64 8;
        rdma_ib_addr 40 8;
    }
    assert_eq!(VERBS_ABI_IS_EXTENDED.addr(), usize::MAX);
    assert_eq!(IBV_PORT_ATTR_SHORT_BYTES, 48);
}
