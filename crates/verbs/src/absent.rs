//! Functions that are exported but not implemented.
//!
//! Purpose   ensures that every program linked against rdma-core loads: programs are linked with immediate
//!           binding, so a single missing symbol would keep them from starting. A function that is not
//!           implemented returns the same value as on a device without the feature.
//! Results   `number` functions return EOPNOTSUPP; `null` and `minus` functions set errno and return NULL or
//!           -1; `quiet` functions return nothing. With `KIBAN_LOG`, calls are logged.
//! Changing  remove a function from this file when it is implemented, because the linker accepts each name
//!           only once.
//! Arguments are not declared, because in Linux's calling conventions the caller removes them.

use crate::ffi::set_errno;
use crate::log::unsupported;
use core::ffi::{c_int, c_uint, c_void};

/// The reason why a function is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The name of the function.
    pub name: &'static str,
    /// The reason: one sentence, without a full stop.
    pub reason: &'static str,
}

macro_rules! absent {
    ($($reason:literal $prefix:literal { $($kind:ident: $($name:ident)*;)* })*) => {
        $($($(absent!(@$kind $prefix $name);)*)*)*
        /// All absent functions, in the order of the table.
        pub const ABSENT: &[Absent] = &[$($($(Absent { name: stringify!($name), reason: $reason },)*)*)*];
    };
    (@number $prefix:literal $name:ident) => {
        const _: () = {
            #[unsafe(export_name = concat!($prefix, stringify!($name)))]
            extern "C" fn $name() -> c_int {
                unsupported(stringify!($name))
            }
        };
    };
    (@null $prefix:literal $name:ident) => {
        const _: () = {
            #[unsafe(export_name = concat!($prefix, stringify!($name)))]
            extern "C" fn $name() -> *mut c_void {
                set_errno(unsupported(stringify!($name)));
                core::ptr::null_mut()
            }
        };
    };
    (@minus $prefix:literal $name:ident) => {
        const _: () = {
            #[unsafe(export_name = concat!($prefix, stringify!($name)))]
            // The result is as wide as ssize_t, and its lower half is -1 as an int.
            extern "C" fn $name() -> isize {
                set_errno(unsupported(stringify!($name)));
                -1
            }
        };
    };
    (@quiet $prefix:literal $name:ident) => {
        const _: () = {
            #[unsafe(export_name = concat!($prefix, stringify!($name)))]
            extern "C" fn $name() {}
        };
    };
}

absent! {
    "there is no fabric, and thus no vendor options (ECE) or port speed" "" {
        number: ibv_query_ece ibv_set_ece ibv_query_port_speed;
    }

    "newer rdma-core releases add asynchronous rdma_getaddrinfo, and events written by programs" "kiban_" {
        minus: rdma_resolve_addrinfo rdma_query_addrinfo rdma_write_cm_event;
    }

    "a software NIC has no DMA buffers" "" {
        null: ibv_reg_dmabuf_mr ibv_alloc_dmah ibv_alloc_buf ibv_reg_buf_mr;
        minus: ibv_dm_export_dmabuf_fd ibv_export_buf_dmabuf_fd;
        number: ibv_dealloc_dmah ibv_free_buf;
    }

    "registrations with hints for hardware (rdma-core 60 and newer); programs fall back to ibv_reg_mr" "" {
        null: ibv_reg_mr_ex;
    }

    "completion counters (rdma-core 65) are not implemented; completion queues report the same data" "" {
        null: ibv_create_comp_cntr;
        number: _ibv_query_comp_cntr_caps ibv_destroy_comp_cntr ibv_inc_comp_cntr ibv_inc_err_comp_cntr
            ibv_qp_attach_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr ibv_set_comp_cntr ibv_set_err_comp_cntr;
    }

    "only for provider libraries, which drive hardware through the kernel" "" {
        minus: ibv_get_fw_ver ibv_read_ibdev_sysfs_file;
        quiet: verbs_register_driver_22 verbs_register_driver_25 verbs_register_driver_33 verbs_register_driver_34
            verbs_register_driver_57 verbs_register_driver_59 verbs_register_driver_64 verbs_register_driver_65
            verbs_set_ops verbs_uninit_context verbs_init_cq __verbs_log;
        null: _verbs_init_and_alloc_context verbs_open_device;
        number: execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_dmah ibv_cmd_alloc_mw ibv_cmd_alloc_pd
            ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_comp_cntr ibv_cmd_create_counters
            ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_cq_ex2 ibv_cmd_create_flow
            ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2
            ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
            ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr ibv_cmd_destroy_counters
            ibv_cmd_destroy_cq ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp
            ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast
            ibv_cmd_export_dmabuf_fd ibv_cmd_free_dm ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr
            ibv_cmd_inc_err_comp_cntr ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp
            ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq
            ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv ibv_cmd_qp_attach_comp_cntr
            ibv_cmd_query_comp_cntr_caps ibv_cmd_query_context ibv_cmd_query_device ibv_cmd_query_device_any
            ibv_cmd_query_device_ex ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_port_speed ibv_cmd_query_qp ibv_cmd_query_srq
            ibv_cmd_read_comp_cntr ibv_cmd_read_counters ibv_cmd_read_err_comp_cntr ibv_cmd_reg_dm_mr
            ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_reg_mr_ex ibv_cmd_req_notify_cq ibv_cmd_rereg_mr
            ibv_cmd_resize_cq ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr;
        null: ibv_dmabuf_heap_alloc ibv_dmabuf_heap_cc_shared_init;
        quiet: ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free;
    }
}

/// Returns the number of attributes in an ioctl buffer chain, which never has more than one buffer here.
#[unsafe(no_mangle)]
extern "C" fn __ioctl_final_num_attrs(attributes: c_uint) -> c_uint {
    attributes
}
