//! The C interface, as in lockstep.h.
use std::os::raw::{c_char, c_void};

#[repr(C)]
pub struct View {
    pub data: *const c_void,
    pub dtype: i32,
    pub rank: i32,
    pub shape: *const i64,
    pub strides: *const i64,
}

#[repr(C)]
pub struct Tag {
    pub name: *const c_char,
    pub value: *const c_char,
}

#[repr(C)]
pub struct Place {
    pub name: *const c_char,
    pub step: i32,
    pub role: i32,
    pub tags: *const Tag,
    pub tag_count: usize,
    pub file: *const c_char,
    pub line: i32,
    pub function: *const c_char,
}

#[repr(C)]
pub struct Options {
    pub struct_bytes: usize,
    pub home: *const c_char,
    pub name: *const c_char,
    pub details_json: *const c_char,
    pub tap: *const c_char,
    pub no_tap: *const c_char,
    pub steps: *const c_char,
    pub full: *const c_char,
    pub stats_only: i32,
    pub no_record: i32,
    pub budget_bytes: u64,
    pub buffer_bytes: u64,
    pub reference: *const c_char,
    pub substitute: *const c_char,
}

pub enum RunHandle {}
pub enum TensorHandle {}

pub const REPLACED: i32 = 1;

extern "C" {
    pub fn lockstep_last_error() -> *const c_char;
    pub fn lockstep_open(options: *const Options, run: *mut *mut RunHandle) -> i32;
    pub fn lockstep_open_from_environment(name: *const c_char, run: *mut *mut RunHandle) -> i32;
    pub fn lockstep_close(run: *mut RunHandle, status: *const c_char) -> i32;
    pub fn lockstep_run_id(run: *const RunHandle) -> *const c_char;
    pub fn lockstep_run_path(run: *const RunHandle) -> *const c_char;
    pub fn lockstep_describe(run: *mut RunHandle, details_json: *const c_char) -> i32;
    pub fn lockstep_wants(run: *const RunHandle, name: *const c_char) -> i32;
    pub fn lockstep_checkpoint(
        run: *mut RunHandle,
        place: *const Place,
        view: *const View,
        replacement: *mut *mut TensorHandle,
    ) -> i32;
    pub fn lockstep_tensor_view(tensor: *const TensorHandle) -> View;
    pub fn lockstep_tensor_free(tensor: *mut TensorHandle);
}
