//! Record named tensors from a Rust program, and go on with the reference's values where they are to be substituted.
//!
//! ```no_run
//! let mut run = lockstep::Run::from_environment("my_port"); // off unless recording was asked for
//! let mut x = vec![0.0f32; 6];
//! run.checkpoint("block.0.attn", &mut x, &[2, 3]);
//! run.close();
//! ```
//!
//! The library is found where `LOCKSTEP_LIB_DIR` says when the crate is built, else in the source tree's `build/lib`.
//! `cargo run` and `cargo test` find it again; a program that is started otherwise needs it installed, or that folder in
//! `LD_LIBRARY_PATH`.
mod ffi;

use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void};
use std::ptr;

/// An element type that has a dtype.
///
/// # Safety
/// `DTYPE` must name the type's exact memory layout.
pub unsafe trait Element: Copy {
    const DTYPE: i32;
}

macro_rules! elements {
    ($($kind:ty => $code:expr),*) => { $(unsafe impl Element for $kind { const DTYPE: i32 = $code; })* };
}
elements!(f64 => 0, f32 => 1, i8 => 6, i16 => 7, i32 => 8, i64 => 9, u8 => 10, u16 => 11, u32 => 12, u64 => 13, bool => 14);

/// IEEE half precision by its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct F16(pub u16);
/// bfloat16 by its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub struct BF16(pub u16);
unsafe impl Element for F16 {
    const DTYPE: i32 = 2;
}
unsafe impl Element for BF16 {
    const DTYPE: i32 = 3;
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Checkpoint,
    Output,
    Input,
    Variable,
}

/// What a checkpoint may be told besides its name.
#[derive(Clone, Debug)]
pub struct At<'a> {
    pub step: Option<u32>,
    pub tags: &'a [(&'a str, &'a str)],
    pub role: Role,
    pub file: &'a str,
    pub line: u32,
}

impl Default for At<'_> {
    fn default() -> Self {
        At { step: None, tags: &[], role: Role::Checkpoint, file: "", line: 0 }
    }
}

/// Where the call stands in the source: `run.checkpoint_at("x", &mut x, &[2], &lockstep::here!())`.
#[macro_export]
macro_rules! here {
    () => {
        $crate::At { file: file!(), line: line!(), ..Default::default() }
    };
}

/// How a run is opened from code. Lists of globs are separated by commas.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub home: Option<String>,
    pub name: String,
    pub reference: Option<String>,
    pub substitute: Option<String>,
    pub tap: Option<String>,
    pub stats_only: bool,
}

/// An open run, or nothing: every method of a run that is not open does nothing.
pub struct Run {
    handle: *mut ffi::RunHandle,
}

// The library locks what it must.
unsafe impl Send for Run {}
unsafe impl Sync for Run {}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

fn optional(text: &Option<String>) -> Option<CString> {
    text.as_deref().map(c_text)
}

fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

fn rust_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The message of the last call that failed in this thread.
pub fn last_error() -> String {
    rust_text(unsafe { ffi::lockstep_last_error() })
}

impl Run {
    /// Opened as LOCKSTEP_RECORD, LOCKSTEP_REFERENCE ... say; not open when nothing was asked for.
    pub fn from_environment(name: &str) -> Run {
        let mut handle = ptr::null_mut();
        if unsafe { ffi::lockstep_open_from_environment(c_text(name).as_ptr(), &mut handle) } < 0 {
            eprintln!("{}", last_error());
        }
        Run { handle }
    }

    pub fn open(options: &Options) -> Result<Run, String> {
        let name = c_text(&options.name);
        let home = optional(&options.home);
        let reference = optional(&options.reference);
        let substitute = optional(&options.substitute);
        let tap = optional(&options.tap);
        let given = ffi::Options {
            struct_bytes: std::mem::size_of::<ffi::Options>(),
            home: pointer(&home),
            name: name.as_ptr(),
            details_json: ptr::null(),
            tap: pointer(&tap),
            no_tap: ptr::null(),
            steps: ptr::null(),
            full: ptr::null(),
            stats_only: options.stats_only as i32,
            no_record: 0,
            budget_bytes: 0,
            buffer_bytes: 0,
            reference: pointer(&reference),
            substitute: pointer(&substitute),
        };
        let mut handle = ptr::null_mut();
        if unsafe { ffi::lockstep_open(&given, &mut handle) } < 0 {
            return Err(last_error());
        }
        Ok(Run { handle })
    }

    pub fn is_open(&self) -> bool {
        !self.handle.is_null()
    }

    pub fn id(&self) -> String {
        rust_text(unsafe { ffi::lockstep_run_id(self.handle) })
    }

    pub fn path(&self) -> String {
        rust_text(unsafe { ffi::lockstep_run_path(self.handle) })
    }

    /// Merges a JSON object into run.json.
    pub fn describe(&self, details_json: &str) {
        unsafe { ffi::lockstep_describe(self.handle, c_text(details_json).as_ptr()) };
    }

    pub fn wants(&self, name: &str) -> bool {
        self.is_open() && unsafe { ffi::lockstep_wants(self.handle, c_text(name).as_ptr()) } != 0
    }

    /// Records a contiguous row-major tensor, and overwrites it with the reference's values when they are to be
    /// substituted; true then.
    pub fn checkpoint<T: Element>(&mut self, name: &str, data: &mut [T], shape: &[usize]) -> bool {
        self.checkpoint_at(name, data, shape, &At::default())
    }

    pub fn checkpoint_at<T: Element>(&mut self, name: &str, data: &mut [T], shape: &[usize], at: &At) -> bool {
        let mut replacement = ptr::null_mut();
        if self.call(name, data, shape, at, &mut replacement) != ffi::REPLACED {
            return false;
        }
        // Same shape and dtype, contiguous: the library promises it.
        unsafe {
            let view = ffi::lockstep_tensor_view(replacement);
            ptr::copy_nonoverlapping(view.data as *const T, data.as_mut_ptr(), data.len());
            ffi::lockstep_tensor_free(replacement);
        }
        true
    }

    /// Records data that must not change.
    pub fn record<T: Element>(&self, name: &str, data: &[T], shape: &[usize], at: &At) {
        self.call(name, data, shape, at, ptr::null_mut());
    }

    /// The same for a tensor that is transposed, sliced or broadcast in memory: `strides` count elements, and the first
    /// element is `data[0]`. Nothing is recorded when it would reach beyond `data`.
    pub fn record_strided<T: Element>(&self, name: &str, data: &[T], shape: &[usize], strides: &[usize], at: &At) {
        if shape.len() != strides.len() {
            eprintln!("lockstep: {name} is not recorded: {} sizes and {} strides", shape.len(), strides.len());
            return;
        }
        let reach = shape
            .iter()
            .zip(strides)
            .try_fold(1usize, |sum, (&size, &stride)| sum.checked_add(size.saturating_sub(1).checked_mul(stride)?));
        if !shape.contains(&0) && reach.map_or(true, |reach| reach > data.len()) {
            eprintln!("lockstep: {name} is not recorded: it reaches beyond its {} elements", data.len());
            return;
        }
        self.offer(name, data, shape, Some(strides), at, ptr::null_mut());
    }

    fn call<T: Element>(
        &self,
        name: &str,
        data: &[T],
        shape: &[usize],
        at: &At,
        replacement: *mut *mut ffi::TensorHandle,
    ) -> i32 {
        if !self.is_open() {
            return 0;
        }
        assert_eq!(shape.iter().product::<usize>(), data.len(), "shape and data differ");
        self.offer(name, data, shape, None, at, replacement)
    }

    fn offer<T: Element>(
        &self,
        name: &str,
        data: &[T],
        shape: &[usize],
        strides: Option<&[usize]>,
        at: &At,
        replacement: *mut *mut ffi::TensorHandle,
    ) -> i32 {
        if !self.is_open() {
            return 0;
        }
        let sizes: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        let steps: Option<Vec<i64>> = strides.map(|all| all.iter().map(|&stride| stride as i64).collect());
        let texts: Vec<(CString, CString)> = at.tags.iter().map(|(tag, value)| (c_text(tag), c_text(value))).collect();
        let tags: Vec<ffi::Tag> =
            texts.iter().map(|(tag, value)| ffi::Tag { name: tag.as_ptr(), value: value.as_ptr() }).collect();
        let (name, file) = (c_text(name), c_text(at.file));
        let place = ffi::Place {
            name: name.as_ptr(),
            step: at.step.map_or(-1, |step| step as i32),
            role: at.role as i32,
            tags: tags.as_ptr(),
            tag_count: tags.len(),
            file: file.as_ptr(),
            line: at.line as i32,
            function: ptr::null(),
        };
        let view = ffi::View {
            data: data.as_ptr() as *const c_void,
            dtype: T::DTYPE,
            rank: sizes.len() as i32,
            shape: sizes.as_ptr(),
            strides: steps.as_ref().map_or(ptr::null(), |steps| steps.as_ptr()),
        };
        let status = unsafe { ffi::lockstep_checkpoint(self.handle, &place, &view, replacement) };
        if status < 0 {
            eprintln!("{}", last_error());
        }
        status
    }

    pub fn close(mut self) {
        self.finish("finished");
    }

    fn finish(&mut self, status: &str) {
        let handle = std::mem::replace(&mut self.handle, ptr::null_mut());
        unsafe { ffi::lockstep_close(handle, c_text(status).as_ptr()) };
    }
}

impl Drop for Run {
    /// Dropped without close(): the program did not get to its end.
    fn drop(&mut self) {
        if self.is_open() {
            self.finish("failed");
        }
    }
}
