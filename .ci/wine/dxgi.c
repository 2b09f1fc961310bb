/* dxgi.dll of a machine without GPUs: a factory that has no adapters. Wine's own needs a display; without one ONNX
   Runtime writes "Failed to create DXGI factory." to standard error at every start. */
#include <windows.h>

#define METHODS 40
#define NOT_FOUND ((HRESULT)0x887A0002) /* DXGI_ERROR_NOT_FOUND */

static HRESULT WINAPI query(void *self, const IID *id, void **out) {
  (void)id;
  *out = self;
  return S_OK;
}
static ULONG WINAPI count(void *self) {
  (void)self;
  return 1;
}
static HRESULT WINAPI none(void) { return NOT_FOUND; }

static void *methods[METHODS] = {(void *)query, (void *)count, (void *)count};
static struct {
  void **methods;
} factory = {methods};

BOOL WINAPI DllMain(HINSTANCE module, DWORD why, void *reserved) {
  (void)module, (void)why, (void)reserved;
  for (int i = 3; i < METHODS; i++) methods[i] = (void *)none;
  return TRUE;
}

__declspec(dllexport) HRESULT WINAPI CreateDXGIFactory(const IID *id, void **out) { return query(&factory, id, out); }
__declspec(dllexport) HRESULT WINAPI CreateDXGIFactory1(const IID *id, void **out) { return query(&factory, id, out); }
__declspec(dllexport) HRESULT WINAPI CreateDXGIFactory2(UINT flags, const IID *id, void **out) {
  (void)flags;
  return query(&factory, id, out);
}
