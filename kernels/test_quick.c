#define _GNU_SOURCE
#include "matrix.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t st=88172645463325252ull; static uint32_t rnd(void){st^=st<<13;st^=st>>7;st^=st<<17;return st>>32;}
static double now(void){struct timespec t;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);return t.tv_sec+1e-9*t.tv_nsec;}
static void *mem(size_t n){return aligned_alloc(64,(n+127)&~63ull);}
static void run(const Kernels*k,Matrix*w,const float*x,size_t M,float*y,Inputs*in,void*scratch){for(size_t m=0;m<M;m++)k->quantize(w,x+m*w->columns,in,m);k->multiply(w,in,M,0,w->rows,y,scratch);}
int main(int c,char**v){int bench=c>1;int bad=0;
 size_t sh[][2]={{768,2304},{3072,768},{100,97},{64,33},{32,5},{96,64},{160,31},{769,40},{31,3}};
 for(int s=0;s<(bench?2:9);s++)for(int bits=8;bits>=4;bits-=4)for(size_t block=64;block>=32;block-=32)for(int z=0;z<2;z++)for(int bf=0;bf<2;bf++){
  if(bench&&(z||bf==0||(bits==8)!=(block==64)))continue;
  size_t K=sh[s][0],N=sh[s][1],KB=(K+block-1)/block;
  Matrix w={.columns=K,.rows=N,.block=block,.blocks=KB,.bits=bits};
  uint8_t*codes=mem(N*row_bytes(&w));for(size_t i=0;i<N*row_bytes(&w);i++)codes[i]=rnd();w.codes=codes;
  float*sc=mem(N*KB*4);uint16_t*b16=mem(N*KB*2);for(size_t i=0;i<N*KB;i++){sc[i]=(1+rnd()%1000)*1e-5f;uint32_t u;memcpy(&u,sc+i,4);b16[i]=u>>16;}
  if(bf)w.bfloats=b16;else w.scales=sc;
  uint8_t*ze=mem(N*KB);for(size_t i=0;i<N*KB;i++)ze[i]=rnd();if(z)w.zeros=ze;
  float*bias=mem(N*4);for(size_t i=0;i<N;i++)bias[i]=(int)(rnd()%200)*.01f-1;if(rnd()%2||bench)w.bias=bias;
  size_t ms[]={1,2,3,4,5,7,8,13,30,128};
  for(int mi=0;mi<10;mi++){size_t M=ms[mi];if(bench&&M==30)continue;
   size_t S=(KB+3)/4*4;Inputs in={S,mem(M*S*block),mem(M*S*4),mem(M*S*4)},in2={S,mem(M*S*block),mem(M*S*4),mem(M*S*4)};
   float*x=mem(M*K*4);for(size_t i=0;i<M*K;i++)x[i]=(int)(rnd()%20001-10000)*1e-4f*(i%97==0?8:1);if(!bench&&M==5){x[0]=1.0f/0;x[K+1]=0.0f/0;for(size_t i=0;i<K;i++)x[2*K+i]=i%3?0:1e-35f;}
   float*y=mem(M*N*4),*y2=mem(M*N*4);const Kernels*k=edgegen_kernels(getenv("K"));if(!k){puts("none");return 9;}if(!bench&&s==0&&mi==0&&bits==8&&block==64&&!z&&!bf)puts(k->name);void*scr=mem(k->scratch_size(&w,M)+64);
   if(bench){double best=1e9;for(int r=0;r<(M>8?10:60);r++){double t=now();run(k,&w,x,M,y,&in,scr);t=now()-t;if(t<best)best=t;}
     printf("K=%zu N=%zu bits=%d block=%zu M=%zu %.1f us %.2f GB/s %.3f TOP/s\n",K,N,bits,block,M,best*1e6,N*row_bytes(&w)/best/1e9,2.0*M*K*N/best/1e12);}
   else{run(k,&w,x,M,y,&in,scr);run(&edgegen_portable,&w,x,M,y2,&in2,0);
    if(memcmp(in.codes,in2.codes,M*S*block)||memcmp(in.sums,in2.sums,M*S*4))printf("quant differs\n");
    int d=0;for(size_t i=0;i<M*N;i++){if(memcmp(y+i,y2+i,4)&&!(y[i]!=y[i]&&y2[i]!=y2[i])){d++;if(d<3)printf("at m=%zu n=%zu %g %g\n",i/N,i%N,y[i],y2[i]);}}
    if(d){bad++;printf("DIFF K=%zu N=%zu bits=%d block=%zu z=%d bf=%d M=%zu: %d\n",K,N,bits,block,z,bf,M,d);if(bad>10)return 1;}}
   free(x);free(y);free(y2);free(in.codes);free(in2.codes);free(scr);}
 }
 printf("bad=%d\n",bad);return bad;}
