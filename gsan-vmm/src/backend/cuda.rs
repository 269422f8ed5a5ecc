//! The `cuda` backend: the memory of NVIDIA GPUs, through the driver's virtual memory management.
//!
//! The driver's library is loaded at run time. [`CudaBackend::new`] says so when there is none.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::intervals::Intervals;
use super::{
    Backend, BackendError, CaptureStatus, Captured, Device, DeviceInfo, Failure, FenceId,
    FreeMemory, HandleKind, MemoryId, Pinned, Queue, Result, SharedHandle, Stream,
};
use calls::{
    Context, Current, DeviceHandle, Driver, Event, Function, OwnStream, Physical, Registration,
    UserStream,
};

mod calls;
mod probe;

pub use probe::{CudaDevice, CudaProbe, probe};

/// The GPUs that this process sees.
#[derive(Debug)]
pub struct CudaBackend {
    driver: Driver,
    devices: Vec<DeviceInfo>,
    handles: Vec<DeviceHandle>,
    /// `reach[owner][from]`.
    reach: Vec<Vec<bool>>,
    granularity: u64,
    /// Before the contexts, so that events go first: the driver follows them into their context.
    tables: Mutex<Tables>,
    /// Made at the first use: a context costs hundreds of megabytes of its device.
    contexts: Vec<OnceLock<DeviceContext>>,
}

/// A kernel that was loaded onto a device.
#[derive(Debug)]
pub struct CudaKernel {
    device: Device,
    function: InContext<Function>,
}

/// Memory of the host that devices reach until this is dropped.
#[derive(Debug)]
pub struct CudaRegistration(
    #[expect(dead_code, reason = "it is kept until it is dropped")] InContext<Registration>,
);

#[derive(Debug)]
struct DeviceContext {
    /// Before the context, so that it goes first.
    stream: OwnStream,
    context: Arc<Context>,
}

/// Something that is given back in its context, which lives as long. Its owner may outlive the backend.
#[derive(Debug)]
struct InContext<T> {
    what: Option<T>,
    driver: Driver,
    context: Arc<Context>,
}

impl<T> InContext<T> {
    fn new(what: T, driver: Driver, context: &Arc<Context>) -> InContext<T> {
        InContext {
            what: Some(what),
            driver,
            context: Arc::clone(context),
        }
    }
}

impl<T> Drop for InContext<T> {
    fn drop(&mut self) {
        // At the end of a process there may be none to enter.
        let _current = self.driver.enter(Some(&self.context));
        drop(self.what.take());
    }
}

/// Everything the backend has handed out. No call of the driver is made under its lock.
#[derive(Debug, Default)]
struct Tables {
    last_number: u64,
    memory: HashMap<u64, Arc<Physical>>,
    fences: HashMap<u64, Arc<Mark>>,
    reservations: Intervals<()>,
    mappings: Intervals<()>,
}

/// A point in a stream.
#[derive(Debug)]
enum Mark {
    Recorded(Event),
    /// The stream was being captured: the point is where the capture ends.
    AfterCapture(Device, UserStream),
}

impl Tables {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

impl CudaBackend {
    /// The GPUs of this machine that this process sees.
    ///
    /// # Errors
    /// When there is no driver, it is too old, or it reports an error; also when it has no device
    /// that can map memory at addresses of one's own.
    pub fn new() -> Result<CudaBackend> {
        let driver = Driver::load()?;
        let handles = driver.devices()?;
        let mut granularity = 0;
        let mut devices = Vec::new();
        for &handle in &handles {
            if driver.maps_memory(handle)? {
                granularity = driver.granularity(handle)?.max(granularity);
            }
            devices.push(DeviceInfo {
                name: driver.name(handle)?,
                uuid: driver.uuid(handle)?,
                memory: driver.total_memory(handle)?,
                multiprocessors: driver.multiprocessors(handle)?,
                fabric: driver.has_fabric(handle)?,
            });
        }
        if granularity == 0 {
            return Err(BackendError::new(
                "cuDeviceGetAttribute",
                Failure::NotSupported,
                "no device of this machine supports virtual memory management",
            ));
        }
        let mut reach = Vec::new();
        for (owner, &owner_handle) in handles.iter().enumerate() {
            let from = handles.iter().enumerate().map(|(from, &from_handle)| {
                Ok(from == owner || driver.can_access_peer(from_handle, owner_handle)?)
            });
            reach.push(from.collect::<Result<Vec<bool>>>()?);
        }
        Ok(CudaBackend {
            driver,
            devices,
            contexts: handles.iter().map(|_| OnceLock::new()).collect(),
            handles,
            reach,
            granularity,
            tables: Mutex::default(),
        })
    }

    /// Loads the kernel `name` of `image` onto a device.
    ///
    /// # Errors
    /// When the device does not exist, or the driver refuses the image.
    ///
    /// # Safety
    /// `image` must be PTX that the driver can be trusted with.
    pub unsafe fn load_kernel(
        &self,
        device: Device,
        image: &CStr,
        name: &CStr,
    ) -> Result<CudaKernel> {
        let context = &self.context(device)?.context;
        let current = self.driver.enter(Some(context))?;
        // SAFETY: the caller vouches for it.
        let function = unsafe { self.driver.load_function(&current, image, name)? };
        Ok(CudaKernel {
            device,
            function: InContext::new(function, self.driver, context),
        })
    }

    /// Gives one CTA of a kernel to a stream of its device.
    ///
    /// # Errors
    /// When the stream is not one of this backend, or the device fails.
    ///
    /// # Safety
    /// The kernel must have as many parameters as there are `arguments`, of at most 64 bits each, and
    /// what it does with them must be sound.
    pub unsafe fn launch_kernel(
        &self,
        kernel: &CudaKernel,
        stream: Stream,
        threads: u32,
        arguments: &mut [u64],
    ) -> Result<()> {
        let stream = user_stream("cuLaunchKernel", stream)?;
        let context = &self.context(kernel.device)?.context;
        let current = self.driver.enter_stream(stream, context)?;
        let Some(function) = &kernel.function.what else {
            let reason = "the kernel is being unloaded";
            let call = "cuLaunchKernel";
            return Err(BackendError::new(call, Failure::InvalidArgument, reason));
        };
        // SAFETY: the caller vouches for it.
        unsafe {
            self.driver
                .launch(&current, stream, function, threads, arguments)
        }
    }

    /// Whether a stream waits for the legacy default stream of its device, and that one for it.
    ///
    /// # Errors
    /// When the stream is not one of this backend, or the driver does not know it.
    pub fn waits_for_legacy(&self, device: Device, stream: Stream) -> Result<bool> {
        let stream = user_stream("cuStreamGetFlags", stream)?;
        let context = &self.context(device)?.context;
        let current = self.driver.enter_stream(stream, context)?;
        self.driver.waits_for_legacy(&current, stream)
    }

    /// Lets every device read and write memory of the host at `start`, until the registration is
    /// dropped. Returns it and the address that devices use.
    ///
    /// # Errors
    /// When the driver refuses: it takes whole pages, of anonymous memory or of files in `/dev/shm`, which
    /// are not registered already.
    ///
    /// # Safety
    /// The range must stay mapped until the registration is dropped, and be accessed by atomics alone.
    pub unsafe fn register(&self, start: u64, bytes: u64) -> Result<(CudaRegistration, u64)> {
        let context = self.context(Device(0))?;
        let current = self.driver.enter(Some(&context.context))?;
        let (registration, address) = self.driver.register(&current, start, bytes)?;
        let registration = InContext::new(registration, self.driver, &context.context);
        Ok((CudaRegistration(registration), address))
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is a single insertion or removal, so the tables are whole after a panic.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, call: &'static str, device: Device) -> Result<DeviceHandle> {
        let handle = self.handles.get(device.0 as usize);
        handle.copied().ok_or_else(|| no_device(call, device))
    }

    fn context(&self, device: Device) -> Result<&DeviceContext> {
        const CALL: &str = "cuDevicePrimaryCtxRetain";
        let handle = self.handle(CALL, device)?;
        let cell = &self.contexts[device.0 as usize];
        if let Some(context) = cell.get() {
            return Ok(context);
        }
        let context = self.driver.retain_context(handle)?;
        let stream = self
            .driver
            .new_stream(&self.driver.enter(Some(&context))?)?;
        // Another thread may have been faster; its context is the same one.
        Ok(cell.get_or_init(|| DeviceContext {
            stream,
            context: Arc::new(context),
        }))
    }

    /// Enters the context of `device` to work on a mapped range.
    fn work_on(
        &self,
        call: &'static str,
        device: Device,
        address: u64,
        bytes: u64,
    ) -> Result<(Current<'_>, &OwnStream)> {
        self.mapped(call, address, bytes)?;
        let context = self.context(device)?;
        Ok((self.driver.enter(Some(&context.context))?, &context.stream))
    }

    fn mapped(&self, call: &'static str, address: u64, bytes: u64) -> Result<()> {
        let mut tables = self.tables();
        let found = tables.mappings.containing(address, bytes).is_some();
        found.then_some(()).ok_or_else(|| {
            let reason = format!("{bytes} bytes at {address:#x} are not mapped");
            BackendError::new(call, Failure::InvalidArgument, reason)
        })
    }

    fn memory(&self, call: &'static str, memory: MemoryId) -> Result<Arc<Physical>> {
        let known = self.tables().memory.get(&memory.0).cloned();
        known.ok_or_else(|| no_handle(call, "memory", memory.0))
    }

    fn enter_memory(&self, physical: Physical) -> MemoryId {
        let mut tables = self.tables();
        let number = tables.number();
        tables.memory.insert(number, Arc::new(physical));
        MemoryId(number)
    }

    fn mark(&self, device: Device, stream: UserStream) -> Result<Mark> {
        let context = &self.context(device)?.context;
        let current = self.driver.enter_stream(stream, context)?;
        Ok(match self.driver.record(&current, stream)? {
            Some(event) => Mark::Recorded(event),
            None => Mark::AfterCapture(device, stream),
        })
    }
}

fn user_stream(call: &'static str, stream: Stream) -> Result<UserStream> {
    match stream.0 {
        Queue::Default => Ok(UserStream(0)),
        Queue::Cuda(handle) => Ok(UserStream(handle)),
        Queue::Host(_) => {
            let reason = "a host stream was given to the cuda backend";
            Err(BackendError::new(call, Failure::InvalidArgument, reason))
        }
    }
}

fn no_device(call: &'static str, device: Device) -> BackendError {
    let reason = format!("there is no {device}");
    BackendError::new(call, Failure::InvalidArgument, reason)
}

fn no_handle(call: &'static str, what: &str, number: u64) -> BackendError {
    let reason = format!("there is no {what} number {number}");
    BackendError::new(call, Failure::NoSuchHandle, reason)
}

impl Backend for CudaBackend {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn granularity(&self) -> u64 {
        self.granularity
    }

    fn reaches(&self, from: Device, owner: Device) -> bool {
        let row = self.reach.get(owner.0 as usize);
        row.and_then(|row| row.get(from.0 as usize))
            .is_some_and(|&reaches| reaches)
    }

    fn free_memory(&self, device: Device) -> Result<FreeMemory> {
        let context = self.context(device)?;
        let current = self.driver.enter(Some(&context.context))?;
        let (free, total) = self.driver.free_and_total(&current)?;
        Ok(FreeMemory { free, total })
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        let address = self.driver.reserve(bytes, alignment)?;
        self.tables().reservations.insert(address, bytes, ());
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "cuMemAddressFree";
        {
            let mut tables = self.tables();
            let known = tables.reservations.exact(address, bytes).is_some();
            if !known || tables.mappings.overlaps(address, bytes) {
                let reason = format!("{bytes} bytes at {address:#x} are no empty reservation");
                return Err(BackendError::new(CALL, Failure::InvalidArgument, reason));
            }
            // Out of the table first: as soon as the driver has the range back it may hand it to
            // another thread.
            tables.reservations.remove(address);
        }
        self.driver.unreserve(address, bytes).inspect_err(|_| {
            self.tables().reservations.insert(address, bytes, ());
        })
    }

    fn create(&self, device: Device, bytes: u64, kind: HandleKind) -> Result<MemoryId> {
        let handle = self.handle("cuMemCreate", device)?;
        let _relaxed = self.driver.enter(None)?;
        let physical = self.driver.create(handle, bytes, kind)?;
        Ok(self.enter_memory(physical))
    }

    fn release(&self, memory: MemoryId) -> Result<()> {
        let removed = self.tables().memory.remove(&memory.0);
        let physical = removed.ok_or_else(|| no_handle("cuMemRelease", "memory", memory.0))?;
        let _relaxed = self.driver.enter(None)?;
        // If another call is using it, it goes when that call is over.
        Arc::try_unwrap(physical).map_or(Ok(()), Physical::release)
    }

    fn map(&self, address: u64, bytes: u64, memory: MemoryId) -> Result<()> {
        const CALL: &str = "cuMemMap";
        let physical = self.memory(CALL, memory)?;
        let _relaxed = self.driver.enter(None)?;
        {
            let mut tables = self.tables();
            let reserved = tables.reservations.containing(address, bytes).is_some();
            if !reserved || tables.mappings.overlaps(address, bytes) {
                let reason = format!("{bytes} bytes at {address:#x} are not reserved and free");
                return Err(BackendError::new(CALL, Failure::InvalidArgument, reason));
            }
            tables.mappings.insert(address, bytes, ());
        }
        self.driver.map(address, bytes, &physical).inspect_err(|_| {
            self.tables().mappings.remove(address);
        })
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        const CALL: &str = "cuMemUnmap";
        if self.tables().mappings.exact(address, bytes).is_none() {
            let reason = format!("{bytes} bytes at {address:#x} are no mapping");
            return Err(BackendError::new(CALL, Failure::InvalidArgument, reason));
        }
        let _relaxed = self.driver.enter(None)?;
        self.driver.unmap(address, bytes)?;
        self.tables().mappings.remove(address);
        Ok(())
    }

    fn allow(&self, address: u64, bytes: u64, devices: &[Device]) -> Result<()> {
        const CALL: &str = "cuMemSetAccess";
        self.mapped(CALL, address, bytes)?;
        let handles = devices.iter().map(|&device| self.handle(CALL, device));
        let handles = handles.collect::<Result<Vec<_>>>()?;
        let _relaxed = self.driver.enter(None)?;
        self.driver.allow(address, bytes, &handles)
    }

    fn export(&self, memory: MemoryId, kind: HandleKind) -> Result<SharedHandle> {
        let physical = self.memory("cuMemExportToShareableHandle", memory)?;
        self.driver.export(&physical, kind)
    }

    fn import(&self, device: Device, handle: SharedHandle, _bytes: u64) -> Result<MemoryId> {
        self.handle("cuMemImportFromShareableHandle", device)?;
        // The driver does not tell the size; mapping more than there is fails.
        let physical = self.driver.import(&handle)?;
        Ok(self.enter_memory(physical))
    }

    fn fill(&self, device: Device, address: u64, bytes: u64, value: u8) -> Result<()> {
        let (current, stream) = self.work_on("cuMemsetD8Async", device, address, bytes)?;
        self.driver.fill(&current, stream, address, bytes, value)
    }

    fn read(&self, device: Device, address: u64, into: &mut [u8]) -> Result<()> {
        let bytes = into.len() as u64;
        let (current, stream) = self.work_on("cuMemcpyDtoHAsync", device, address, bytes)?;
        self.driver.read(&current, stream, address, into)
    }

    fn write(&self, device: Device, address: u64, from: &[u8]) -> Result<()> {
        let bytes = from.len() as u64;
        let (current, stream) = self.work_on("cuMemcpyHtoDAsync", device, address, bytes)?;
        self.driver.write(&current, stream, address, from)
    }

    fn fence(&self, device: Device, stream: Stream) -> Result<FenceId> {
        let stream = user_stream("cuEventRecord", stream)?;
        let mark = self.mark(device, stream)?;
        let mut tables = self.tables();
        let number = tables.number();
        tables.fences.insert(number, Arc::new(mark));
        Ok(FenceId(number))
    }

    fn passed(&self, fence: FenceId) -> Result<bool> {
        let mark = self.tables().fences.get(&fence.0).cloned();
        match &*mark.ok_or_else(|| no_handle("cuEventQuery", "fence", fence.0))? {
            Mark::Recorded(event) => {
                let _relaxed = self.driver.enter(None)?;
                self.driver.has_happened(event)
            }
            Mark::AfterCapture(device, stream) => {
                let mark = self.mark(*device, *stream)?;
                self.tables().fences.insert(fence.0, Arc::new(mark));
                Ok(false)
            }
        }
    }

    fn forget(&self, fence: FenceId) {
        // The event is destroyed after the lock has been given back.
        let mark = self.tables().fences.remove(&fence.0);
        drop(mark);
    }

    fn synchronize(&self, device: Device) -> Result<()> {
        let context = self.context(device)?;
        let current = self.driver.enter(Some(&context.context))?;
        self.driver.wait_for_context(&current)
    }

    fn pin(&self, bytes: u64) -> Result<Pinned> {
        let context = self.context(Device(0))?;
        let current = self.driver.enter(Some(&context.context))?;
        Pinned::new(bytes, |start, bytes| {
            let (registration, address) = self.driver.register(&current, start, bytes)?;
            let registration = InContext::new(registration, self.driver, &context.context);
            Ok((Some(Box::new(registration) as _), address))
        })
    }

    fn own_stream(&self, device: Device) -> Result<Stream> {
        Ok(Stream(Queue::Cuda(self.context(device)?.stream.number())))
    }

    fn fill_on(
        &self,
        device: Device,
        stream: Stream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        const CALL: &str = "cuMemsetD8Async";
        let stream = user_stream(CALL, stream)?;
        self.mapped(CALL, address, bytes)?;
        let context = &self.context(device)?.context;
        let current = self.driver.enter_stream(stream, context)?;
        self.driver.fill_on(&current, stream, address, bytes, value)
    }

    fn wait_on(&self, device: Device, stream: Stream, fence: FenceId) -> Result<()> {
        const CALL: &str = "cuStreamWaitEvent";
        let stream = user_stream(CALL, stream)?;
        let mark = self.tables().fences.get(&fence.0).cloned();
        match &*mark.ok_or_else(|| no_handle(CALL, "fence", fence.0))? {
            Mark::Recorded(event) => {
                let context = &self.context(device)?.context;
                let current = self.driver.enter_stream(stream, context)?;
                self.driver.wait_for(&current, stream, event)
            }
            Mark::AfterCapture(..) => {
                let reason = "the fence lies in a capture that has not ended";
                Err(BackendError::new(CALL, Failure::NotSupported, reason))
            }
        }
    }

    fn capture_status(&self, _device: Device, stream: Stream) -> Result<CaptureStatus> {
        let stream = user_stream("cuStreamIsCapturing", stream)?;
        self.driver.capture_status(stream)
    }

    fn captured(
        &self,
        device: Device,
        stream: Stream,
        is_known: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Captured> {
        const CALL: &str = "cuStreamGetCaptureInfo";
        let stream = user_stream(CALL, stream)?;
        let status = self.driver.capture_status(stream)?;
        if !matches!(status, CaptureStatus::Active(_)) {
            return Ok(Captured {
                status,
                ..Captured::default()
            });
        }
        let context = &self.context(device)?.context;
        let _current = self.driver.enter_stream(stream, context)?;
        let ends = self.driver.capture_ends(stream)?;
        // SAFETY: the nodes are those of a capture that goes on, whose graph the driver keeps until
        // the stream's user ends it, which is a call about the stream.
        let look = |node| unsafe { self.driver.graph_node(node) };
        let nodes = super::capture::walk(&ends, is_known, look)?;
        Ok(Captured {
            status,
            ends,
            nodes,
        })
    }
}
