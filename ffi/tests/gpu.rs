//! Calls of XLA on a GPU, as XLA makes them, in the model of the CUDA driver: no GPU is needed, and no JAX. The structures
//! are written down here once more, after `xla/ffi/api/c_api.h`.

#![cfg(target_os = "linux")]

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;
use std::thread;
use tilewright::{Buffer, DType, Device};
use tilewright_driver_model::{Settings, in_model};
use tilewright_ffi::Exported;
use tilewright_ffi::xla::{Recording, scratch};
use tilewright_ffi_example as example;

const U8: i32 = 6;
const F32: i32 = 11;
const EXECUTE: i32 = 3;
const METADATA: i32 = 1;
const COMMAND_BUFFER_COMPATIBLE: u32 = 1;

#[repr(C)]
struct Header {
    size: usize,
    extension: *const c_void,
}

const NO_EXTENSION: Header = Header { size: 0, extension: null() };

#[repr(C)]
struct XlaBuffer {
    header: Header,
    dtype: i32,
    data: *mut c_void,
    rank: i64,
    sizes: *const i64,
}

#[repr(C)]
struct Buffers {
    header: Header,
    len: i64,
    types: *const i32,
    items: *const *const XlaBuffer,
}

#[repr(C)]
struct Attributes {
    header: Header,
    len: i64,
    types: *const i32,
    names: *const *const Span,
    items: *const *const c_void,
}

#[repr(C)]
struct Span {
    data: *const u8,
    len: usize,
}

#[repr(C)]
struct Frame {
    header: Header,
    api: *const Api,
    context: *mut c_void,
    stage: i32,
    args: Buffers,
    results: Buffers,
    attributes: Attributes,
    future: *mut c_void,
}

#[repr(C)]
struct Api {
    header: Header,
    version: [u64; 3],
    internal: *const c_void,
    create_error: extern "C" fn(*const ErrorArgs) -> *mut Failure,
    error_message: *const c_void,
    destroy_error: *const c_void,
    register: *const c_void,
    stream: extern "C" fn(*mut StreamArgs) -> *mut Failure,
    others: [*const c_void; 4],
    allocate: extern "C" fn(*mut AllocateArgs) -> *mut Failure,
    free: extern "C" fn(*mut FreeArgs) -> *mut Failure,
    more: [*const c_void; 6],
    ordinal: extern "C" fn(*mut OrdinalArgs) -> *mut Failure,
}

#[repr(C)]
struct ErrorArgs {
    header: Header,
    message: *const c_char,
    code: i32,
}

#[repr(C)]
struct StreamArgs {
    header: Header,
    context: *mut c_void,
    stream: *mut c_void,
}

#[repr(C)]
struct AllocateArgs {
    header: Header,
    context: *mut c_void,
    bytes: usize,
    alignment: usize,
    data: *mut c_void,
}

#[repr(C)]
struct FreeArgs {
    header: Header,
    context: *mut c_void,
    bytes: usize,
    data: *mut c_void,
}

#[repr(C)]
struct OrdinalArgs {
    header: Header,
    context: *mut c_void,
    ordinal: i32,
}

#[repr(C)]
struct MetadataExtension {
    size: usize,
    kind: i32,
    next: *mut c_void,
    metadata: *mut Metadata,
}

#[repr(C)]
struct Metadata {
    size: usize,
    version: Header,
    number: [i32; 2],
    traits: u32,
}

/// An error of the model of XLA.
struct Failure(String);

thread_local! {
    /// The stream that XLA has.
    static STREAM: Cell<*mut c_void> = const { Cell::new(null_mut()) };
    /// Scratch memory that was taken and not given back.
    static SCRATCH: RefCell<Vec<Buffer<u8>>> = const { RefCell::new(Vec::new()) };
    /// How often scratch memory was taken.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn create_error(args: *const ErrorArgs) -> *mut Failure {
    // SAFETY: the message is a string that ends with a zero byte.
    let (text, code) = unsafe { (CStr::from_ptr((*args).message), (*args).code) };
    Box::into_raw(Box::new(Failure(format!("{code}: {}", text.to_string_lossy()))))
}

extern "C" fn stream(args: *mut StreamArgs) -> *mut Failure {
    // SAFETY: the arguments are the caller's.
    unsafe { (*args).stream = STREAM.get() };
    null_mut()
}

extern "C" fn ordinal(args: *mut OrdinalArgs) -> *mut Failure {
    // SAFETY: as above.
    unsafe { (*args).ordinal = 0 };
    null_mut()
}

extern "C" fn allocate(args: *mut AllocateArgs) -> *mut Failure {
    // SAFETY: as above.
    let args = unsafe { &mut *args };
    let buffer = device().empty::<u8>(args.bytes).expect("memory");
    args.data = buffer.as_view().raw().address.get() as *mut c_void;
    assert!((args.data as usize).is_multiple_of(args.alignment));
    TAKEN.set(TAKEN.get() + 1);
    SCRATCH.with_borrow_mut(|scratch| scratch.push(buffer));
    null_mut()
}

extern "C" fn free(args: *mut FreeArgs) -> *mut Failure {
    // SAFETY: as above.
    let args = unsafe { &*args };
    SCRATCH.with_borrow_mut(|scratch| {
        let is_it = |buffer: &Buffer<u8>| buffer.as_view().raw().address.get() == args.data as u64;
        let at = scratch.iter().position(is_it).expect("memory that was taken");
        assert_eq!(scratch[at].len(), args.bytes);
        scratch.remove(at);
    });
    null_mut()
}

/// The GPU with the stream of XLA.
fn device() -> Device {
    // SAFETY: the stream is alive as long as the test.
    unsafe { Device::of_stream(0, STREAM.get() as u64) }.expect("a GPU")
}

fn api() -> Api {
    Api {
        header: Header { size: size_of::<Api>(), extension: null() },
        version: [0; 3],
        internal: null(),
        create_error,
        error_message: null(),
        destroy_error: null(),
        register: null(),
        stream,
        others: [null(); 4],
        allocate,
        free,
        more: [null(); 6],
        ordinal,
    }
}

/// A row of elements as a buffer of XLA.
fn row<T: DType>(buffer: &Buffer<T>, dtype: i32, sizes: &[i64; 1]) -> XlaBuffer {
    let data = buffer.as_view().raw().address.get() as *mut c_void;
    XlaBuffer { header: NO_EXTENSION, dtype, data, rank: 1, sizes: sizes.as_ptr() }
}

/// Calls an operator of one input and one output with an attribute that is a string.
fn call<O: Exported>(x: &Buffer<f32>, y: &mut Buffer<f32>, attribute: Option<(&str, &str)>) -> Result<(), String> {
    call_in::<O>(x, y, attribute, None)
}

/// The same of an operator that takes scratch memory, with a buffer for that.
fn call_in<O: Exported>(
    x: &Buffer<f32>,
    y: &mut Buffer<f32>,
    attribute: Option<(&str, &str)>,
    room: Option<&mut Buffer<u8>>,
) -> Result<(), String> {
    let (x_sizes, y_sizes) = ([x.len() as i64], [y.len() as i64]);
    let room_sizes = [room.as_ref().map_or(0, |room| room.len() as i64)];
    let room = room.map(|room| row(room, U8, &room_sizes));
    let (x, y) = (row(x, F32, &x_sizes), row(y, F32, &y_sizes));
    let (args, mut results) = (vec![&raw const x], vec![&raw const y]);
    results.extend(room.as_ref().map(std::ptr::from_ref));
    let (name, value) = attribute.unwrap_or_default();
    let span = |text: &str| Span { data: text.as_ptr(), len: text.len() };
    let (name, value) = (span(name), span(value));
    let (names, values) = ([&raw const name], [(&raw const value).cast::<c_void>()]);
    let attributes = Attributes {
        header: NO_EXTENSION,
        len: i64::from(attribute.is_some()),
        types: &4,
        names: names.as_ptr(),
        items: values.as_ptr(),
    };
    enter::<O>(Recording::Allowed, NO_EXTENSION, &args, &results, attributes)
}

/// Calls the handler of an operator.
fn enter<O: Exported>(
    recording: Recording,
    header: Header,
    args: &[*const XlaBuffer],
    results: &[*const XlaBuffer],
    attributes: Attributes,
) -> Result<(), String> {
    let api = api();
    let buffers = |items: &[*const XlaBuffer]| Buffers {
        header: NO_EXTENSION,
        len: items.len() as i64,
        types: &1,
        items: items.as_ptr(),
    };
    let mut frame = Frame {
        header,
        api: &raw const api,
        context: null_mut(),
        stage: EXECUTE,
        args: buffers(args),
        results: buffers(results),
        attributes,
        future: null_mut(),
    };
    // SAFETY: the frame is one of XLA, and all in it is alive.
    let failure = unsafe { O::xla(recording, (&raw mut frame).cast()) }.cast::<Failure>();
    if failure.is_null() {
        return Ok(());
    }
    // SAFETY: `create_error` has made it.
    Err(unsafe { Box::from_raw(failure) }.0)
}

/// How many bytes the example's operator takes for so many floats on the model's GPU.
fn bytes_of_reversed(floats: usize, how: &str) -> i64 {
    let tensor = format!(r#"["float32", [{floats}]]"#);
    let request = format!(
        r#"{{"op": "reversed", "gpu": 0, "operands": [{tensor}], "results": [{tensor}], "attributes": {{"how": {{"str": "{how}"}}}}}}"#
    );
    let request = CString::new(request).expect("no zero byte");
    // SAFETY: a string that ends with a zero byte.
    unsafe { scratch(&[example::reversed::MEASURED], request.as_ptr()) }
}

/// Sets the stream that XLA has up, and gives the GPU beside it, for memory.
fn set_up() -> (Device, tilewright::Stream) {
    let memory = Device::cuda(0).expect("the model has a GPU");
    let stream = memory.new_stream().expect("a stream");
    STREAM.set(stream.cudarc().expect("of CUDA").cu_stream().cast());
    (memory, stream)
}

#[test]
fn xla_calls_run_on_its_stream_and_memory() {
    if !in_model("xla_calls_run_on_its_stream_and_memory", &Settings::default()) {
        return;
    }
    let (memory, stream) = set_up();
    let xs: Vec<f32> = (0..3000).map(|i| (i as f32 - 1500.0) / 200.0).collect();
    let (x, mut y) = (memory.upload(&xs).expect("x"), memory.zeros::<f32>(xs.len()).expect("y"));
    memory.synchronize().expect("memory is set");
    call::<example::silu>(&x, &mut y, None).expect("a call");
    stream.synchronize().expect("it is done");
    for (x, y) in xs.iter().zip(y.to_vec().expect("results")) {
        let expected = x / (1.0 + (-x).exp());
        // The hardware's exp2 and division: a few ulp.
        assert!((y - expected).abs() <= 1e-5 * expected.abs().max(1e-3), "silu({x}) = {expected}, not {y}");
    }
    let error = call::<example::silu>(&x, &mut memory.zeros(7).expect("y"), None).expect_err("too short");
    assert_eq!(error, "3: silu: `y` is f32 of shape [7]; accepted: f32 of shape [3000]");
}

const TWICE: Option<(&str, &str)> = Some(("how", "twice"));

#[test]
fn scratch_memory_is_the_buffer_behind_the_results() {
    if !in_model("scratch_memory_is_the_buffer_behind_the_results", &Settings::default()) {
        return;
    }
    let (memory, stream) = set_up();
    let xs: Vec<f32> = (0..500).map(|i| i as f32).collect();
    let (x, mut y) = (memory.upload(&xs).expect("x"), memory.zeros::<f32>(xs.len()).expect("y"));
    let bytes = bytes_of_reversed(xs.len(), "twice");
    assert_eq!((bytes, bytes_of_reversed(xs.len(), "once")), (2048, 0), "500 floats, in pieces of 256 bytes");
    assert_eq!(bytes_of_reversed(xs.len(), "thrice"), -1, "the function fails");
    let mut room = memory.zeros::<u8>(bytes as usize).expect("room");
    memory.synchronize().expect("memory is set");
    call_in::<example::reversed>(&x, &mut y, TWICE, Some(&mut room)).expect("a call");
    stream.synchronize().expect("it is done");
    assert_eq!(y.to_vec().expect("results"), xs);
    assert_eq!(TAKEN.get(), 0, "nothing is of XLA's allocator");
    let backwards: Vec<u8> = xs.iter().rev().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(room.to_vec().expect("what is between")[..2000], backwards);
}

#[test]
fn scratch_memory_that_was_not_asked_for_is_of_xlas_allocator() {
    if !in_model("scratch_memory_that_was_not_asked_for_is_of_xlas_allocator", &Settings::default()) {
        return;
    }
    let (memory, stream) = set_up();
    let xs: Vec<f32> = (0..500).map(|i| i as f32).collect();
    let (x, mut y) = (memory.upload(&xs).expect("x"), memory.zeros::<f32>(xs.len()).expect("y"));
    let mut room = memory.zeros::<u8>(1792).expect("too little");
    memory.synchronize().expect("memory is set");
    for (round, room) in [None, Some(&mut room)].into_iter().enumerate() {
        call_in::<example::reversed>(&x, &mut y, TWICE, room).expect("a call");
        stream.synchronize().expect("it is done");
        assert_eq!(y.to_vec().expect("results"), xs);
        let taken = (TAKEN.get(), SCRATCH.with_borrow(Vec::len));
        assert_eq!(taken, (round + 1, 0), "taken once, and given back");
    }
}

/// Captures calls as XLA does for a command buffer.
fn captured(stream: &tilewright::Stream, calls: impl FnOnce()) -> cudarc::driver::CudaGraph {
    let cuda = stream.cudarc().expect("of CUDA");
    cuda.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).expect("a capture");
    calls();
    cuda.end_capture(CUgraphInstantiate_flags(0)).expect("it ends").expect("a graph")
}

#[test]
fn calls_in_a_command_buffer_use_their_buffer_at_each_replay() {
    if !in_model("calls_in_a_command_buffer_use_their_buffer_at_each_replay", &Settings::default()) {
        return;
    }
    let (memory, stream) = set_up();
    let (mut x, mut y) = (memory.zeros::<f32>(500).expect("x"), memory.zeros::<f32>(500).expect("y"));
    let mut room = memory.zeros::<u8>(2048).expect("room");
    memory.synchronize().expect("memory is set");
    let graph = captured(&stream, || {
        call_in::<example::reversed>(&x, &mut y, TWICE, Some(&mut room)).expect("a call");
    });
    assert_eq!(TAKEN.get(), 0, "nothing is of XLA's allocator");
    for round in 0..3 {
        let xs: Vec<f32> = (0..500).map(|i| (i * (round + 1)) as f32).collect();
        x.copy_from_slice(&xs).expect("x is set");
        memory.synchronize().expect("memory is set");
        graph.launch().expect("a replay");
        stream.synchronize().expect("it is done");
        assert_eq!(y.to_vec().expect("results"), xs);
    }
}

#[test]
fn a_command_buffer_refuses_calls_that_take_more_than_was_asked_for() {
    if !in_model("a_command_buffer_refuses_calls_that_take_more_than_was_asked_for", &Settings::default()) {
        return;
    }
    let (memory, stream) = set_up();
    let (x, mut y) = (memory.zeros::<f32>(500).expect("x"), memory.zeros::<f32>(500).expect("y"));
    let mut room = memory.zeros::<u8>(1024).expect("room");
    memory.synchronize().expect("memory is set");
    captured(&stream, || {
        call::<example::reversed>(&x, &mut y, Some(("how", "once"))).expect("it takes none");
        let error = call_in::<example::reversed>(&x, &mut y, TWICE, Some(&mut room)).expect_err("too little");
        assert_eq!(
            error,
            "13: reversed: takes at least 2048 bytes of scratch memory, but 1024 were laid out when the call was traced, and \
             XLA records it into a command buffer, where it can have no more; accepted: a call that is traced with the GPU \
             that runs it, or XLA_FLAGS=--xla_gpu_enable_command_buffer="
        );
    });
    assert_eq!(TAKEN.get(), 0, "nothing is of XLA's allocator");
}

#[test]
fn calls_whose_memory_is_not_known_are_not_recorded() {
    let traits = |recording| {
        let version = Header { size: 0, extension: null() };
        let mut metadata = Metadata { size: size_of::<Metadata>(), version, number: [0; 2], traits: u32::MAX };
        let size = size_of::<MetadataExtension>();
        let mut extension = MetadataExtension { size, kind: METADATA, next: null_mut(), metadata: &raw mut metadata };
        let header = Header { size: size_of::<Frame>(), extension: (&raw mut extension).cast() };
        let attributes = Attributes { header: NO_EXTENSION, len: 0, types: null(), names: null(), items: null() };
        enter::<example::reversed>(recording, header, &[], &[], attributes).expect("it says what it is");
        assert_eq!(metadata.number, [0, 1]);
        metadata.traits
    };
    assert_eq!(traits(Recording::Allowed), COMMAND_BUFFER_COMPATIBLE);
    assert_eq!(traits(Recording::Refused), 0);
}

#[test]
fn errors_of_kernels_come_with_the_next_call_or_when_waiting() {
    if !in_model("errors_of_kernels_come_with_the_next_call_or_when_waiting", &Settings::default()) {
        return;
    }
    let (memory, stream) = set_up();
    let (x, mut y) = (memory.zeros::<f32>(8).expect("x"), memory.zeros::<f32>(8).expect("y"));
    memory.synchronize().expect("memory is set");
    // Of the lanes that read too far, any may report.
    let what = "of `x`, which has 8 elements";
    call::<example::launches_out_of_bounds>(&x, &mut y, None).expect("nothing is known yet");
    stream.cudarc().expect("of CUDA").synchronize().expect("the driver waits");
    let error = call::<example::silu>(&x, &mut y, None).expect_err("the earlier call's");
    assert!(error.starts_with("13: silu: an earlier launch on this stream failed: "), "{error}");
    assert!(error.contains(what) && error.contains("kernels.rs:"), "{error}");
    call::<example::silu>(&x, &mut y, None).expect("each error is told once");

    call::<example::launches_out_of_bounds>(&x, &mut y, None).expect("nothing is known yet");
    let text = tilewright_ffi::call::synchronize();
    assert!(!text.is_null());
    // SAFETY: a string that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    assert!(text.contains(what), "{text}");
    assert!(tilewright_ffi::call::synchronize().is_null());
}

/// Each thread has a default stream of its own, of the same name.
#[test]
fn errors_on_default_streams_of_threads_come_when_waiting() {
    if !in_model("errors_on_default_streams_of_threads_come_when_waiting", &Settings::default()) {
        return;
    }
    let memory = Device::cuda(0).expect("the model has a GPU");
    thread::scope(|threads| {
        let alive = [(); 2].map(|()| {
            let ((called, was_called), (alive, ends)) = (channel(), channel::<()>());
            let memory = &memory;
            threads.spawn(move || {
                STREAM.set(2 as *mut c_void);
                let (x, mut y) = (memory.zeros::<f32>(8).expect("x"), memory.zeros::<f32>(8).expect("y"));
                memory.synchronize().expect("memory is set");
                call::<example::launches_out_of_bounds>(&x, &mut y, None).expect("nothing is known yet");
                called.send(()).expect("the test waits");
                let _ = ends.recv();
            });
            was_called.recv().expect("a call");
            alive
        });
        let errors = [(); 3].map(|()| !tilewright_ffi::call::synchronize().is_null());
        drop(alive);
        assert_eq!(errors, [true, true, false]);
    });
}
