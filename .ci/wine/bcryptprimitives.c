/* bcryptprimitives.dll, which Wine 8 has not: the one function that Rust's standard library takes from it. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T size) {
  while (size) {
    ULONG part = size > 65536 ? 65536 : (ULONG)size;
    if (!SystemFunction036(to, part)) return FALSE;
    to += part;
    size -= part;
  }
  return TRUE;
}
