//! Raw calls of the CUDA driver, as results, and the handles they hand out.
//!
//! A [`Driver`] is the proof that the library is there and was initialised; without one, nothing
//! here can be called. Handles are made here only, from what the driver returned, and give back
//! what they hold when they are dropped, so a call never sees one the driver does not know.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use cudarc::driver::sys;
use sys::CUdevice_attribute_enum as Attribute;

use super::super::{
    BackendError, CaptureStatus, CapturedNode, Dependency, Failure, HandleKind, NodeKind, Result,
    SharedHandle,
};

/// The oldest driver whose functions are all there: CUDA 11.4.
const OLDEST: i32 = 11040;

/// The oldest driver that tells programmatic edges of graphs from others: CUDA 12.3.
const EDGE_DATA: i32 = 12030;

/// The driver's library, loaded and initialised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver(());

/// A device of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceHandle(sys::CUdevice);

/// Physical memory.
#[derive(Debug)]
pub(super) struct Physical(sys::CUmemGenericAllocationHandle);

/// The primary context of a device.
#[derive(Debug)]
pub(super) struct Context {
    context: sys::CUcontext,
    device: DeviceHandle,
}

/// A non-blocking stream of a context.
#[derive(Debug)]
pub(super) struct OwnStream(sys::CUstream);

/// A function of code that was loaded into a context.
#[derive(Debug)]
pub(super) struct Function {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: the driver's functions may be called from any thread with any of its handles.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A range of the host's memory that devices may access, by its first address.
#[derive(Debug)]
pub(super) struct Registration(u64);

/// An event that has been recorded.
#[derive(Debug)]
pub(super) struct Event(sys::CUevent);

// SAFETY: the driver's functions may be called from any thread with any of its handles.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for OwnStream {}
// SAFETY: as above.
unsafe impl Sync for OwnStream {}
// SAFETY: as above.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// A stream that its user vouches for (see [`Stream::cuda`](super::super::Stream::cuda)); 0 is the
/// default stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserStream(pub(super) u64);

/// While it lives, this thread's calls go to one context, and are allowed although another thread
/// captures a graph: they put nothing into it.
#[derive(Debug)]
pub(super) struct Current<'a> {
    pushed: bool,
    mode: sys::CUstreamCaptureMode,
    context: std::marker::PhantomData<(&'a Context, *const ())>,
}

/// Makes a result of the driver's answer to `call`.
fn check(call: &'static str, code: sys::CUresult) -> Result<()> {
    use sys::cudaError_enum as E;
    if code == E::CUDA_SUCCESS {
        return Ok(());
    }
    let failure = match code {
        E::CUDA_ERROR_OUT_OF_MEMORY => Failure::OutOfMemory,
        E::CUDA_ERROR_INVALID_HANDLE => Failure::NoSuchHandle,
        E::CUDA_ERROR_INVALID_VALUE | E::CUDA_ERROR_INVALID_DEVICE => Failure::InvalidArgument,
        E::CUDA_ERROR_NOT_SUPPORTED | E::CUDA_ERROR_NOT_PERMITTED => Failure::NotSupported,
        _ => Failure::Other,
    };
    let mut text = ptr::null();
    // SAFETY: the pointer is valid, and the driver was loaded, or it could not have answered.
    let described = unsafe { sys::cuGetErrorString(code, &raw mut text) };
    let reason = if described == E::CUDA_SUCCESS && !text.is_null() {
        // SAFETY: the driver returned a NUL-terminated string that lives as long as it does.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{code:?}: {}", text.to_string_lossy())
    } else {
        format!("{code:?}")
    };
    Err(BackendError::new(call, failure, reason))
}

fn handle_type(kind: HandleKind) -> sys::CUmemAllocationHandleType {
    match kind {
        HandleKind::PosixFd => {
            sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        }
        HandleKind::Fabric => sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC,
    }
}

fn location(device: DeviceHandle) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device.0,
    }
}

fn properties(device: DeviceHandle, kind: HandleKind) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: handle_type(kind),
        location: location(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

impl Driver {
    /// Loads and initialises the driver.
    pub(super) fn load() -> Result<Driver> {
        // SAFETY: loading the driver's library runs its initialisers, which is what it is for.
        if !unsafe { sys::is_culib_present() } {
            return Err(BackendError::new(
                "dlopen",
                Failure::NotSupported,
                "this machine has no CUDA driver (libcuda.so.1)",
            ));
        }
        // SAFETY: the library is there, and nothing has to come before this call.
        check("cuInit", unsafe { sys::cuInit(0) })?;
        let driver = Driver(());
        let version = driver.version()?;
        if version < OLDEST {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(BackendError::new(
                "cuDriverGetVersion",
                Failure::NotSupported,
                format!("the driver is for CUDA {major}.{minor}, at least 11.4 is needed"),
            ));
        }
        Ok(driver)
    }

    /// The CUDA version of the driver: 1000 times the major plus 10 times the minor number.
    pub(super) fn version(self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: the pointer is valid.
        let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        check("cuDriverGetVersion", code)?;
        Ok(version)
    }

    pub(super) fn devices(self) -> Result<Vec<DeviceHandle>> {
        let mut count = 0;
        // SAFETY: the pointer is valid.
        check("cuDeviceGetCount", unsafe {
            sys::cuDeviceGetCount(&raw mut count)
        })?;
        let device = |ordinal| {
            let mut device = 0;
            // SAFETY: the pointer is valid.
            check("cuDeviceGet", unsafe {
                sys::cuDeviceGet(&raw mut device, ordinal)
            })?;
            Ok(DeviceHandle(device))
        };
        (0..count).map(device).collect()
    }

    pub(super) fn name(self, device: DeviceHandle) -> Result<String> {
        let mut name = [0u8; 256];
        let length = name.len() as c_int;
        // SAFETY: the buffer has `length` bytes.
        let code = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), length, device.0) };
        check("cuDeviceGetName", code)?;
        let end = name
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(super) fn uuid(self, device: DeviceHandle) -> Result<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer is valid.
        let code = unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device.0) };
        check("cuDeviceGetUuid", code)?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    pub(super) fn total_memory(self, device: DeviceHandle) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: the pointer is valid.
        let code = unsafe { sys::cuDeviceTotalMem_v2(&raw mut bytes, device.0) };
        check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    /// Whether the device can map physical memory at addresses of one's own.
    pub(super) fn maps_memory(self, device: DeviceHandle) -> Result<bool> {
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        Ok(self.attribute(device, attribute)? != 0)
    }

    pub(super) fn has_fabric(self, device: DeviceHandle) -> Result<bool> {
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
        // Drivers before 12.4 do not know the question.
        Ok(self.attribute(device, attribute).unwrap_or(0) != 0)
    }

    pub(super) fn multiprocessors(self, device: DeviceHandle) -> Result<u32> {
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        Ok(self.attribute(device, attribute)?.unsigned_abs())
    }

    /// Whether a stream waits for the legacy default stream.
    pub(super) fn waits_for_legacy(self, _: &Current<'_>, stream: UserStream) -> Result<bool> {
        let mut flags = 0;
        // SAFETY: the pointer is valid, and the stream's user vouches for it.
        let code = unsafe { sys::cuStreamGetFlags(stream.raw(), &raw mut flags) };
        check("cuStreamGetFlags", code)?;
        Ok(flags & sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32 == 0)
    }

    pub(super) fn compute_capability(self, device: DeviceHandle) -> Result<(i32, i32)> {
        Ok((
            self.attribute(
                device,
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            )?,
            self.attribute(
                device,
                Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )?,
        ))
    }

    fn attribute(self, device: DeviceHandle, attribute: Attribute) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: the pointer is valid.
        let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device.0) };
        check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    pub(super) fn can_access_peer(self, from: DeviceHandle, owner: DeviceHandle) -> Result<bool> {
        let mut can = 0;
        // SAFETY: the pointer is valid.
        let code = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, from.0, owner.0) };
        check("cuDeviceCanAccessPeer", code)?;
        Ok(can != 0)
    }

    pub(super) fn granularity(self, device: DeviceHandle) -> Result<u64> {
        let properties = properties(device, HandleKind::PosixFd);
        let minimum = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut bytes = 0;
        // SAFETY: both pointers are valid.
        let code = unsafe {
            sys::cuMemGetAllocationGranularity(&raw mut bytes, &raw const properties, minimum)
        };
        check("cuMemGetAllocationGranularity", code)?;
        Ok(bytes as u64)
    }

    pub(super) fn reserve(self, bytes: u64, alignment: u64) -> Result<u64> {
        let mut address = 0;
        // SAFETY: the pointer is valid; the driver chooses the addresses.
        let code = unsafe {
            sys::cuMemAddressReserve(&raw mut address, bytes as usize, alignment as usize, 0, 0)
        };
        check("cuMemAddressReserve", code)?;
        Ok(address)
    }

    /// Gives back a range that [`Self::reserve`] returned.
    pub(super) fn unreserve(self, address: u64, bytes: u64) -> Result<()> {
        // SAFETY: the driver refuses what is not a reservation; device addresses are never
        // followed by Rust code.
        let code = unsafe { sys::cuMemAddressFree(address, bytes as usize) };
        check("cuMemAddressFree", code)
    }

    pub(super) fn create(
        self,
        device: DeviceHandle,
        bytes: u64,
        kind: HandleKind,
    ) -> Result<Physical> {
        let properties = properties(device, kind);
        let mut handle = 0;
        // SAFETY: both pointers are valid.
        let code =
            unsafe { sys::cuMemCreate(&raw mut handle, bytes as usize, &raw const properties, 0) };
        check("cuMemCreate", code)?;
        Ok(Physical(handle))
    }

    pub(super) fn map(self, address: u64, bytes: u64, memory: &Physical) -> Result<()> {
        // SAFETY: the handle is one of the driver's, and not released while it is borrowed.
        let code = unsafe { sys::cuMemMap(address, bytes as usize, 0, memory.0, 0) };
        check("cuMemMap", code)
    }

    pub(super) fn unmap(self, address: u64, bytes: u64) -> Result<()> {
        // SAFETY: the driver refuses what is not mapped; device addresses are never followed by
        // Rust code.
        let code = unsafe { sys::cuMemUnmap(address, bytes as usize) };
        check("cuMemUnmap", code)
    }

    pub(super) fn allow(self, address: u64, bytes: u64, devices: &[DeviceHandle]) -> Result<()> {
        let access = |&device| sys::CUmemAccessDesc {
            location: location(device),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let access: Vec<_> = devices.iter().map(access).collect();
        // SAFETY: the pointer is valid for as many elements as are said to be there.
        let code =
            unsafe { sys::cuMemSetAccess(address, bytes as usize, access.as_ptr(), access.len()) };
        check("cuMemSetAccess", code)
    }

    pub(super) fn export(self, memory: &Physical, kind: HandleKind) -> Result<SharedHandle> {
        const CALL: &str = "cuMemExportToShareableHandle";
        let mut descriptor: c_int = -1;
        let mut fabric = Box::new([0u8; 64]);
        let target: *mut c_void = match kind {
            HandleKind::PosixFd => (&raw mut descriptor).cast(),
            HandleKind::Fabric => fabric.as_mut_ptr().cast(),
        };
        // SAFETY: a descriptor is written as an int, a fabric handle as 64 bytes
        // (CUmemFabricHandle); the target has room for the kind asked for.
        let code =
            unsafe { sys::cuMemExportToShareableHandle(target, memory.0, handle_type(kind), 0) };
        check(CALL, code)?;
        if kind == HandleKind::Fabric {
            return Ok(SharedHandle::Fabric(fabric));
        }
        // SAFETY: the driver made the descriptor for this call; nobody else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)
            .map_err(|e| BackendError::new("fcntl(F_SETFD)", Failure::Other, e.to_string()))?;
        Ok(SharedHandle::PosixFd(descriptor))
    }

    pub(super) fn import(self, handle: &SharedHandle) -> Result<Physical> {
        let source: *mut c_void = match handle {
            // The driver takes the number itself, in place of a pointer.
            SharedHandle::PosixFd(descriptor) => {
                ptr::without_provenance_mut(descriptor.as_raw_fd() as usize)
            }
            SharedHandle::Fabric(name) => name.as_ptr().cast_mut().cast(),
        };
        let mut memory = 0;
        // SAFETY: a fabric handle is 64 bytes that the driver only reads.
        let code = unsafe {
            sys::cuMemImportFromShareableHandle(&raw mut memory, source, handle_type(handle.kind()))
        };
        check("cuMemImportFromShareableHandle", code)?;
        Ok(Physical(memory))
    }

    pub(super) fn retain_context(self, device: DeviceHandle) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is valid.
        let code = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device.0) };
        check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Context { context, device })
    }

    /// Enters `context`, or none, until the result is dropped.
    pub(super) fn enter(self, context: Option<&Context>) -> Result<Current<'_>> {
        self.enter_raw(context.map(|context| context.context))
    }

    /// Enters the context that a stream belongs to; `default` for the default streams.
    pub(super) fn enter_stream(self, stream: UserStream, default: &Context) -> Result<Current<'_>> {
        let mut context = default.context;
        if stream.0 > 2 {
            // SAFETY: the pointer is valid, and the stream's user vouches for it.
            let code = unsafe { sys::cuStreamGetCtx(stream.raw(), &raw mut context) };
            check("cuStreamGetCtx", code)?;
        }
        self.enter_raw(Some(context))
    }

    fn enter_raw<'a>(self, context: Option<sys::CUcontext>) -> Result<Current<'a>> {
        if let Some(context) = context {
            // SAFETY: the context is retained, or belongs to a stream that lives.
            check("cuCtxPushCurrent", unsafe {
                sys::cuCtxPushCurrent_v2(context)
            })?;
        }
        let mut current = Current {
            pushed: context.is_some(),
            mode: sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
            context: std::marker::PhantomData,
        };
        // SAFETY: the pointer is valid; the old mode comes back in it.
        let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut current.mode) };
        check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(current)
    }

    pub(super) fn free_and_total(self, _: &Current<'_>) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid.
        let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn new_stream(self, _: &Current<'_>) -> Result<OwnStream> {
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer is valid.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&raw mut stream, flags)
        })?;
        Ok(OwnStream(stream))
    }

    /// Fills mapped device memory and waits for it.
    pub(super) fn fill(
        self,
        _: &Current<'_>,
        stream: &OwnStream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        // SAFETY: the caller has looked up that the range is mapped device memory, which no Rust
        // reference points to.
        let code = unsafe { sys::cuMemsetD8Async(address, value, bytes as usize, stream.0) };
        check("cuMemsetD8Async", code)?;
        self.wait(stream)
    }

    /// Copies from mapped device memory and waits for it.
    pub(super) fn read(
        self,
        _: &Current<'_>,
        stream: &OwnStream,
        address: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let target = into.as_mut_ptr().cast();
        // SAFETY: the target has as many bytes and is borrowed until the stream has passed.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(target, address, into.len(), stream.0) };
        check("cuMemcpyDtoHAsync", code)?;
        self.wait(stream)
    }

    /// Copies into mapped device memory and waits for it.
    pub(super) fn write(
        self,
        _: &Current<'_>,
        stream: &OwnStream,
        address: u64,
        from: &[u8],
    ) -> Result<()> {
        let source = from.as_ptr().cast();
        // SAFETY: the source has as many bytes and is borrowed until the stream has passed; the
        // caller has looked up that the range is mapped device memory.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(address, source, from.len(), stream.0) };
        check("cuMemcpyHtoDAsync", code)?;
        self.wait(stream)
    }

    fn wait(self, stream: &OwnStream) -> Result<()> {
        // SAFETY: the stream is one of the driver's.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(stream.0)
        })
    }

    pub(super) fn wait_for_context(self, _: &Current<'_>) -> Result<()> {
        // SAFETY: it takes no argument.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Records an event in `stream`; `None` while the stream is being captured, or while it is
    /// the legacy stream and another one is, because the event would become part of the graph or
    /// end the capture.
    pub(super) fn record(self, _: &Current<'_>, stream: UserStream) -> Result<Option<Event>> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the pointer is valid, and the stream's user vouches for it.
        let code = unsafe { sys::cuStreamIsCapturing(stream.raw(), &raw mut status) };
        if code == sys::cudaError_enum::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            return Ok(None);
        }
        check("cuStreamIsCapturing", code)?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(None);
        }
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is valid.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&raw mut event, flags)
        })?;
        let event = Event(event);
        // SAFETY: the event was made just now; the stream's user vouches for it.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(event.0, stream.raw())
        })?;
        Ok(Some(event))
    }

    /// Whether a stream is being captured.
    pub(super) fn capture_status(self, stream: UserStream) -> Result<CaptureStatus> {
        // The legacy stream is never captured.
        if stream.0 < 2 {
            return Ok(CaptureStatus::None);
        }
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the pointer is valid, and the stream's user vouches for it.
        let code = unsafe { sys::cuStreamIsCapturing(stream.raw(), &raw mut status) };
        check("cuStreamIsCapturing", code)?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Ok(match status {
                sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => CaptureStatus::None,
                _ => CaptureStatus::Invalid,
            });
        }
        let mut id = 0;
        // SAFETY: the pointers are valid or null, and the stream's user vouches for it.
        let code = unsafe {
            sys::cuStreamGetCaptureInfo_v2(
                stream.raw(),
                &raw mut status,
                &raw mut id,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check("cuStreamGetCaptureInfo", code)?;
        Ok(CaptureStatus::Active(id))
    }

    /// The nodes that the next one of a captured stream comes after.
    pub(super) fn capture_ends(self, stream: UserStream) -> Result<Vec<u64>> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, mut count) = (0, 0);
        let (mut nodes, mut edges) = (ptr::null(), ptr::null());
        // SAFETY: the pointers are valid or null, and the stream's user vouches for it.
        let code = unsafe {
            if self.version()? >= EDGE_DATA {
                sys::cuStreamGetCaptureInfo_v3(
                    stream.raw(),
                    &raw mut status,
                    &raw mut id,
                    ptr::null_mut(),
                    &raw mut nodes,
                    // Without a place for it, an edge that has data is an error.
                    &raw mut edges,
                    &raw mut count,
                )
            } else {
                sys::cuStreamGetCaptureInfo_v2(
                    stream.raw(),
                    &raw mut status,
                    &raw mut id,
                    ptr::null_mut(),
                    &raw mut nodes,
                    &raw mut count,
                )
            }
        };
        check("cuStreamGetCaptureInfo", code)?;
        if nodes.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the driver returned an array of as many nodes, which is valid until the next call
        // about the stream: its user makes none meanwhile.
        let nodes = unsafe { std::slice::from_raw_parts(nodes, count) };
        let number = |node: &sys::CUgraphNode| node.expose_provenance() as u64;
        Ok(nodes.iter().map(number).collect())
    }

    /// A node of a graph.
    ///
    /// # Safety
    /// The node must be one that the driver returned, of a graph that lives.
    pub(super) unsafe fn graph_node(self, node: u64) -> Result<CapturedNode> {
        let handle: sys::CUgraphNode = ptr::with_exposed_provenance_mut(node as usize);
        // A newer driver may say what the type does not have.
        let mut kind = 0u32;
        // SAFETY: the caller vouches for the node; the pointer is valid for a C enum.
        let code = unsafe { sys::cuGraphNodeGetType(handle, (&raw mut kind).cast()) };
        check("cuGraphNodeGetType", code)?;
        use sys::CUgraphNodeType_enum as Type;
        let mut event = ptr::null_mut();
        let kind = if kind == Type::CU_GRAPH_NODE_TYPE_KERNEL as u32 {
            NodeKind::Kernel
        } else if kind == Type::CU_GRAPH_NODE_TYPE_GRAPH as u32 {
            NodeKind::Graph
        } else if kind == Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD as u32 {
            // SAFETY: it is such a node; the pointer is valid.
            let code = unsafe { sys::cuGraphEventRecordNodeGetEvent(handle, &raw mut event) };
            check("cuGraphEventRecordNodeGetEvent", code)?;
            NodeKind::RecordEvent(event.addr() as u64)
        } else if kind == Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT as u32 {
            // SAFETY: it is such a node; the pointer is valid.
            let code = unsafe { sys::cuGraphEventWaitNodeGetEvent(handle, &raw mut event) };
            check("cuGraphEventWaitNodeGetEvent", code)?;
            NodeKind::WaitEvent(event.addr() as u64)
        } else {
            NodeKind::Other
        };
        Ok(CapturedNode {
            node,
            kind,
            dependencies: self.dependencies(handle)?,
        })
    }

    /// What a node that the caller has vouched for comes after.
    fn dependencies(self, node: sys::CUgraphNode) -> Result<Vec<Dependency>> {
        const CALL: &str = "cuGraphNodeGetDependencies";
        let with_data = self.version()? >= EDGE_DATA;
        let ask =
            |nodes: *mut sys::CUgraphNode, edges: *mut sys::CUgraphEdgeData, count: &mut usize| {
                // SAFETY: the arrays are null or have as many elements as `count` says; the caller
                // vouches for the node.
                check(CALL, unsafe {
                    match with_data {
                        true => sys::cuGraphNodeGetDependencies_v2(node, nodes, edges, count),
                        false => sys::cuGraphNodeGetDependencies(node, nodes, count),
                    }
                })
            };
        let mut count = 0;
        ask(ptr::null_mut(), ptr::null_mut(), &mut count)?;
        let mut nodes = vec![ptr::null_mut(); count];
        let plain = sys::CUgraphEdgeData {
            from_port: 0,
            to_port: 0,
            type_: 0,
            reserved: [0; 5],
        };
        let mut edges = vec![plain; count];
        if count > 0 {
            ask(nodes.as_mut_ptr(), edges.as_mut_ptr(), &mut count)?;
        }
        let programmatic = sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u32;
        let pairs = nodes.iter().zip(&edges).take(count);
        Ok(pairs
            .map(|(node, edge)| Dependency {
                node: node.expose_provenance() as u64,
                programmatic: u32::from(edge.type_) == programmatic,
            })
            .collect())
    }

    /// Fills mapped device memory once `stream` gets there.
    pub(super) fn fill_on(
        self,
        _: &Current<'_>,
        stream: UserStream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        // SAFETY: the caller has looked up that the range is mapped device memory, which no Rust
        // reference points to; the stream's user vouches for it.
        let code = unsafe { sys::cuMemsetD8Async(address, value, bytes as usize, stream.raw()) };
        check("cuMemsetD8Async", code)
    }

    /// Lets `stream` wait for an event.
    pub(super) fn wait_for(self, _: &Current<'_>, stream: UserStream, event: &Event) -> Result<()> {
        // SAFETY: the event is one of the driver's; the stream's user vouches for it.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(stream.raw(), event.0, 0)
        })
    }

    /// Makes a range of the host's memory accessible to all devices, and returns the address that
    /// they use.
    pub(super) fn register(
        self,
        _: &Current<'_>,
        start: u64,
        bytes: u64,
    ) -> Result<(Registration, u64)> {
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(start as usize);
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the caller owns the range, whose words are all atomic, until the registration is
        // dropped.
        check("cuMemHostRegister", unsafe {
            sys::cuMemHostRegister_v2(pointer, bytes as usize, flags)
        })?;
        let registration = Registration(start);
        let mut address = 0;
        // SAFETY: the pointer is valid, and the range is registered.
        check("cuMemHostGetDevicePointer", unsafe {
            sys::cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0)
        })?;
        Ok((registration, address))
    }

    /// Loads code and finds a function in it.
    ///
    /// # Safety
    /// `image` must be PTX that the driver can be trusted with.
    pub(super) unsafe fn load_function(
        self,
        _: &Current<'_>,
        image: &CStr,
        name: &CStr,
    ) -> Result<Function> {
        let mut module = ptr::null_mut();
        // SAFETY: the pointer is valid, the text ends with a NUL, and the caller vouches for it.
        check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast())
        })?;
        let mut loaded = Function {
            module,
            function: ptr::null_mut(),
        };
        // SAFETY: the pointers are valid and the module is loaded.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&raw mut loaded.function, module, name.as_ptr())
        })?;
        // The driver may put loading off until something of the function is needed, and then wait for
        // all kernels that run.
        let mut threads = 0;
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: the pointer is valid and the function is one of the module.
        check("cuFuncGetAttribute", unsafe {
            sys::cuFuncGetAttribute(&raw mut threads, most, loaded.function)
        })?;
        Ok(loaded)
    }

    /// Launches one CTA of `threads` threads.
    ///
    /// # Safety
    /// The function must have as many parameters as there are arguments, of at most 64 bits, and may
    /// do with them what it does.
    pub(super) unsafe fn launch(
        self,
        _: &Current<'_>,
        stream: UserStream,
        function: &Function,
        threads: u32,
        arguments: &mut [u64],
    ) -> Result<()> {
        let mut pointers: Vec<*mut c_void> = arguments
            .iter_mut()
            .map(|argument| ptr::from_mut(argument).cast())
            .collect();
        // SAFETY: the function belongs to a loaded module, the pointers are valid until the call
        // returns, and the caller vouches for what they point to.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                function.function,
                1,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.raw(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    pub(super) fn has_happened(self, event: &Event) -> Result<bool> {
        // SAFETY: the event is one of the driver's.
        match unsafe { sys::cuEventQuery(event.0) } {
            sys::cudaError_enum::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }
}

impl OwnStream {
    /// The stream as a number.
    pub(super) fn number(&self) -> u64 {
        self.0.expose_provenance() as u64
    }
}

impl UserStream {
    fn raw(self) -> sys::CUstream {
        ptr::with_exposed_provenance_mut(self.0 as usize)
    }
}

impl Physical {
    /// Gives the memory up.
    pub(super) fn release(self) -> Result<()> {
        let handle = std::mem::ManuallyDrop::new(self);
        // SAFETY: the handle is the driver's and is not used again.
        check("cuMemRelease", unsafe { sys::cuMemRelease(handle.0) })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: the handle is the driver's and is not used again.
        log("cuMemRelease", unsafe { sys::cuMemRelease(self.0) });
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once.
        let code = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device.0) };
        log("cuDevicePrimaryCtxRelease", code);
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: the stream is the driver's and is not used again.
        log("cuStreamDestroy", unsafe {
            sys::cuStreamDestroy_v2(self.0)
        });
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: the module is the driver's and is not used again.
        log("cuModuleUnload", unsafe {
            sys::cuModuleUnload(self.module)
        });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let pointer = ptr::with_exposed_provenance_mut::<c_void>(self.0 as usize);
        // SAFETY: the range was registered once.
        log("cuMemHostUnregister", unsafe {
            sys::cuMemHostUnregister(pointer)
        });
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is the driver's and is not used again.
        log("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.0) });
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        // SAFETY: the pointer is valid; it holds the mode from before.
        let code = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut self.mode) };
        log("cuThreadExchangeStreamCaptureMode", code);
        if self.pushed {
            let mut context = ptr::null_mut();
            // SAFETY: the pointer is valid; this thread pushed a context and pops that one:
            // `Current` is bound to the thread and to a scope.
            let code = unsafe { sys::cuCtxPopCurrent_v2(&raw mut context) };
            log("cuCtxPopCurrent", code);
        }
    }
}

/// At the end of a process the driver is gone before its handles, which is no news.
fn log(call: &'static str, code: sys::CUresult) {
    if let Err(error) = check(call, code) {
        tracing::debug!(%error, "while giving back a handle");
    }
}
