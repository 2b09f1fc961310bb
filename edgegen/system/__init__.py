"""The machine: cores, memory, processor, locks and folders; all that depends on the operating system.

Facts come from a :class:`~edgegen.system.source.Source`, which is this machine unless a test passes another.
"""

from edgegen.system.awake import Deadline, awake_seconds
from edgegen.system.children import child_environment, interrupt, use_one_blas_thread
from edgegen.system.console import heed_console
from edgegen.system.cores import Cores, cores, physical_cores
from edgegen.system.file_names import is_portable, name_clashes, path_too_long
from edgegen.system.file_times import change_time
from edgegen.system.folders import (
    expand_user,
    home_folder,
    is_in_use,
    locked,
    remove_folder,
    replace_text,
    retry_in_use,
    sync_folder,
)
from edgegen.system.memory import (
    address_space_limit,
    available_gpu_memory,
    available_memory,
    fresh_memory,
    installed_memory,
    memory_limit,
    peak_memory,
    proportional_memory,
    share_freed_memory,
    trim_memory,
)
from edgegen.system.processor import (
    computer,
    features,
    governor,
    has_vnni,
    processor,
    processor_features,
    second_level_cache,
    temperature,
    throttling,
)
from edgegen.system.regular_file import open_regular, read_regular, read_regular_text
from edgegen.system.source import LOCAL, Local, Source, creation_flags, is_frozen

__all__ = [
    "LOCAL",
    "Cores",
    "Deadline",
    "Local",
    "Source",
    "address_space_limit",
    "available_gpu_memory",
    "available_memory",
    "awake_seconds",
    "change_time",
    "child_environment",
    "computer",
    "cores",
    "creation_flags",
    "expand_user",
    "features",
    "fresh_memory",
    "governor",
    "has_vnni",
    "heed_console",
    "home_folder",
    "installed_memory",
    "interrupt",
    "is_frozen",
    "is_in_use",
    "is_portable",
    "locked",
    "memory_limit",
    "name_clashes",
    "open_regular",
    "path_too_long",
    "peak_memory",
    "physical_cores",
    "processor",
    "processor_features",
    "proportional_memory",
    "read_regular",
    "read_regular_text",
    "remove_folder",
    "replace_text",
    "retry_in_use",
    "second_level_cache",
    "share_freed_memory",
    "sync_folder",
    "temperature",
    "throttling",
    "trim_memory",
    "use_one_blas_thread",
]
